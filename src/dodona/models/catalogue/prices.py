"""What calls cost, in US dollars.

A cost is a `Decimal`: budgets add up many small sums and compare them with a ceiling, and both
databases must come to the same one. `None` means that nobody knows, which is not zero.

The first of these that answers is taken:

    1. the wire          a provider that says what it charged
    2. the operator      prices from the configuration
    3. nobody bills      ollama, extractive and scripted run on the operator's own machine
    4. genai-prices      the list it was installed with; it is never brought up to date by network

An OpenAI-compatible server is not free because it listens on loopback: it may pass calls on to one
that bills. Its price is unknown until the operator gives one (0, if that is so). The same holds
for the models that Ollama runs in its maker's cloud.
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
from dodona.models.catalogue.catalogue import MAX_NAME_CHARS

_MILLION: Final = Decimal(1_000_000)
_ZERO: Final = Decimal(0)
_UNBILLED: Final = frozenset({"ollama", "extractive", "scripted"})
# Our providers by the names of genai-prices; one that is not here has no published price.
_PRICE_LIST_PROVIDERS: Final = {
    "anthropic": "anthropic",
    "openai": "openai",
    "openrouter": "openrouter",
    "gemini": "google",
    "deepseek": "deepseek",
}


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars per million tokens. Cached tokens cost what others do unless stated."""

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
    """Costs of calls made, and the most that calls to be made can cost.

    `configured` is keyed by `provider/model` or by the model alone, as requests name them.
    """

    def __init__(self, configured: Mapping[str, Price] | None = None) -> None:
        self._configured = dict(configured or {})

    def cost(self, usage: Usage, *, provider: str, model: str, at: datetime) -> Decimal | None:
        """What a call cost that was made at a time: some prices depend on the hour."""
        told = usage.cost_usd
        if told is not None and math.isfinite(told) and told >= 0:
            return Decimal(str(told))
        return self._highest_cost([_normalize_usage(usage)], provider=provider, model=model, at=at)

    def max_cost(
        self, *, provider: str, model: str, input_tokens: int, max_output_tokens: int, at: datetime
    ) -> Decimal | None:
        """The most a call can cost: nothing read from a cache, all of it written to one if dearer.

        Searches and other extras that a provider bills beside tokens are not in it.
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
        """The highest cost of some variants, by the first source that has a price."""
        configured = self._configured.get(f"{provider}/{model}") or self._configured.get(model)
        if configured:
            return max(configured.cost(usage) for usage in variants)
        if _is_unbilled(provider, model):
            return _ZERO
        costs = [
            _list_price_cost(usage, provider=provider, model=model, at=at) for usage in variants
        ]
        known = [cost for cost in costs if cost is not None]
        return max(known) if known else None


def _is_unbilled(provider: str, model: str) -> bool:
    if provider == "openrouter":
        return model.endswith(":free")
    return provider in _UNBILLED and not model.endswith((":cloud", "-cloud"))


def _normalize_usage(usage: Usage) -> Usage:
    """The same usage where parts do not exceed their whole, whatever a wire says."""
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
    """The cost by the price list of genai-prices, or None if the model is not on it."""
    if provider not in _PRICE_LIST_PROVIDERS or len(model) > MAX_NAME_CHARS:
        return None
    # Importing it takes a third of a second; who only runs local models never pays that.
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
            found = get_snapshot().calc(
                listed, reference, _PRICE_LIST_PROVIDERS[provider], None, at
            )
        except LookupError:
            continue
        # An entry without prices is a model somebody knows of, not one that is free.
        price = found.model_price
        is_priced = price.input_mtok is not None and price.output_mtok is not None
        return found.total_price if is_priced else None
    return None


def _name_candidates(provider: str, model: str) -> Iterator[str]:
    """The names a price list may have for a model: `:thinking` and `models/` change no price."""
    yield model
    plain = model.removeprefix("models/").removesuffix(":thinking")
    if plain != model:
        yield plain
    # Elsewhere a vendor in front of the name is habit; at OpenRouter it is part of the name.
    if provider != "openrouter" and "/" in plain:
        yield plain.rpartition("/")[2]
