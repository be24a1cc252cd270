"""The cost of model calls, in US dollars.

Costs are `Decimal`: budgets add many small amounts and compare them with a limit, and both
databases must compute the same total. `None` means unknown, which is not zero.

The first source that has a price wins:

    1. response          some providers report what they charged
    2. configuration     prices set by the operator
    3. local providers   ollama, extractive and scripted run on this machine and cost nothing
    4. genai-prices      the price list shipped with the package; never updated over the network

An OpenAI-compatible server on loopback is not assumed to be free: it may forward calls to a paid
provider. Its price is unknown until the operator sets one (possibly 0). The same applies to models
that Ollama runs in its own cloud.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from decimal import Decimal
from typing import Final

from dodona.core.errors import ConfigError
from dodona.core.ports.model import Usage

_MAX_NAME_CHARS: Final = 200  # clients choose names, and genai-prices caches each one
_MILLION: Final = Decimal(1_000_000)
_ZERO: Final = Decimal(0)
_UNBILLED: Final = frozenset({"ollama", "extractive", "scripted"})
# Names of our providers in genai-prices. A provider that is not listed has no published price.
_PRICE_LIST_PROVIDERS: Final = {
    "anthropic": "anthropic",
    "openai": "openai",
    "openrouter": "openrouter",
    "gemini": "google",
    "deepseek": "deepseek",
}


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars per million tokens. Cached tokens cost the same unless set separately."""

    input: Decimal
    output: Decimal
    cache_read: Decimal | None = None
    cache_write: Decimal | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            value: Decimal | None = getattr(self, field.name)
            if value is not None and not (value.is_finite() and value >= 0):
                raise ConfigError(
                    f"the price {field.name} must be 0 or more (got {value}).",
                    hint="Prices are US dollars per million tokens.",
                )

    def cost(self, usage: Usage) -> Decimal:
        """Return the cost of this usage."""
        fresh = usage.input_tokens - usage.cache_read_tokens - usage.cache_write_tokens
        read = self.input if self.cache_read is None else self.cache_read
        write = self.input if self.cache_write is None else self.cache_write
        total = (
            fresh * self.input
            + usage.cache_read_tokens * read
            + usage.cache_write_tokens * write
            + usage.output_tokens * self.output
        )
        return total / _MILLION


class Prices:
    """Computes the cost of a finished call, and the maximum cost of a planned one.

    `configured` is keyed by `provider/model` or by the model name alone.
    """

    def __init__(self, configured: Mapping[str, Price] | None = None) -> None:
        self._configured = dict(configured or {})

    def cost(self, usage: Usage, *, provider: str, model: str, at: datetime) -> Decimal | None:
        """Return the cost of a call made `at` this time; some prices depend on the hour."""
        reported = usage.cost_usd
        if reported is not None and math.isfinite(reported) and reported >= 0:
            return Decimal(str(reported))
        return self._highest_cost([_normalize_usage(usage)], provider=provider, model=model, at=at)

    def max_cost(
        self, *, provider: str, model: str, input_tokens: int, max_output_tokens: int, at: datetime
    ) -> Decimal | None:
        """Return the maximum cost of a call: no cache hits, and cache writes if they cost more.

        Extras that a provider bills in addition to tokens, such as searches, are not included.
        """
        plain = Usage(input_tokens=max(0, input_tokens), output_tokens=max(0, max_output_tokens))
        variants = [
            plain,
            Usage(plain.input_tokens, plain.output_tokens, cache_write_tokens=plain.input_tokens),
            Usage(plain.input_tokens, plain.output_tokens, reasoning_tokens=plain.output_tokens),
        ]
        return self._highest_cost(variants, provider=provider, model=model, at=at)

    def _highest_cost(
        self, variants: Sequence[Usage], *, provider: str, model: str, at: datetime
    ) -> Decimal | None:
        """Return the highest cost of these variants, from the first source with a price."""
        configured = self._configured.get(f"{provider}/{model}") or self._configured.get(model)
        if configured:
            return max(configured.cost(usage) for usage in variants)
        if _is_unbilled(provider, model):
            return _ZERO
        costs = [
            _list_price_cost(usage, provider=provider, model=model, at=at) for usage in variants
        ]
        listed = [cost for cost in costs if cost is not None]
        return max(listed) if listed else None


def _is_unbilled(provider: str, model: str) -> bool:
    if provider == "openrouter":
        return model.endswith(":free")
    return provider in _UNBILLED and not model.endswith((":cloud", "-cloud"))


def _normalize_usage(usage: Usage) -> Usage:
    """Return the usage with no part larger than its total, even if the provider reports so."""
    read, write = max(0, usage.cache_read_tokens), max(0, usage.cache_write_tokens)
    output = max(0, usage.output_tokens)
    return Usage(
        input_tokens=max(usage.input_tokens, read + write),
        output_tokens=output,
        cache_read_tokens=read,
        cache_write_tokens=write,
        reasoning_tokens=min(max(0, usage.reasoning_tokens), output),
    )


def _list_price_cost(usage: Usage, *, provider: str, model: str, at: datetime) -> Decimal | None:
    """Return the cost by the price list of genai-prices; None if the model is not listed."""
    if provider not in _PRICE_LIST_PROVIDERS or len(model) > _MAX_NAME_CHARS:
        return None
    # The import takes a third of a second, which local models do not need.
    from genai_prices import Usage as ListedUsage  # noqa: PLC0415
    from genai_prices.data_snapshot import get_snapshot  # noqa: PLC0415

    listed = ListedUsage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        output_reasoning_tokens=usage.reasoning_tokens,
    )
    for reference in _name_candidates(provider, model):
        try:
            result = get_snapshot().calc(
                listed, reference, _PRICE_LIST_PROVIDERS[provider], None, at
            )
        except LookupError:
            continue
        # An entry without prices means that the price is unknown, not that the model is free.
        price = result.model_price
        is_priced = price.input_mtok is not None and price.output_mtok is not None
        return result.total_price if is_priced else None
    return None


def _name_candidates(provider: str, model: str) -> Iterator[str]:
    """Yield names to look up; `:thinking` and `models/` do not change the price."""
    yield model
    plain = model.removeprefix("models/").removesuffix(":thinking")
    if plain != model:
        yield plain
    # At OpenRouter the vendor prefix is part of the name; elsewhere it is optional.
    if provider != "openrouter" and "/" in plain:
        yield plain.rpartition("/")[2]
