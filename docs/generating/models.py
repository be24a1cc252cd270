"""models.md, of the providers, and what is known of their models."""

from __future__ import annotations

from dodona.models import PROVIDERS, Provider, fallback, sse, wire
from dodona.models.anthropic.request import (
    DEFAULT_MAX_TOKENS,
    DEFAULT_MAX_TOKENS_THINKING,
    MIN_THINKING_BUDGET,
)
from dodona.models.catalogue import catalogue
from dodona.models.catalogue.data import DEFAULT_MODEL_CONTEXT_SIZES
from dodona.models.providers import THINKING_SUFFIX
from generating.writing import page, prose, table


def models_page() -> str:
    return page(
        "# Models",
        prose("""[How to choose a model](../how-to/choose-a-model.md) tells which of these is
            taken, [how to call a model](../how-to/call-a-model.md) how to call one from
            Python."""),
        "## Providers",
        prose("""In this order they are looked for when no provider is set. `base_url` replaces the
            address; `openai-compatible` has none of its own. A key is the first of its variables
            that is set, else what is in `~/.dodona/credentials/PROVIDER`."""),
        table(
            ("provider", "wire", "address", "key", "default model"),
            [
                *map(_provider, PROVIDERS.values()),
                ("`extractive`", "none", "", "none needed", "`extractive`"),
                ("`scripted`", "none", "", "none needed", "a file of answers must be named"),
            ],
        ),
        prose(f"""`{THINKING_SUFFIX}` behind the name of a model, or `thinking` in a request, adds this to
            what is sent:"""),
        table(("provider", "with thinking", "without"), [*map(_thinking, PROVIDERS.values())]),
        prose("""OpenAI's models from GPT 5.2 on take no tools while they reason: with tools they
            are told `"reasoning_effort":"none"`."""),
        "## Context sizes",
        prose(f"""A name is looked up as it stands, then without vendor, date and variant, then in
            the list of genai-prices that Dodona was installed with, then by the longest beginning
            in this table. A model that nobody knows is taken to have
            {catalogue.DEFAULT_CONTEXT_SIZE:,} tokens. An answer may have as many tokens as the
            last column says for the longest beginning of the name; where it says nothing, nobody
            does."""),
        table(
            ("model", "tokens of context", "longest answer"),
            [_size(name, size) for name, size in DEFAULT_MODEL_CONTEXT_SIZES.items()],
        ),
        "## Limits",
        "How long a provider may take is [set in the config](config.md#agenttimeouts).",
        table(
            ("limit", "at most"),
            [
                ("one answer", f"{wire.MAX_ANSWER_BYTES:,} bytes"),
                ("one event of a stream", f"{sse.MAX_EVENT_BYTES:,} bytes"),
                ("what Anthropic is asked for if nobody says", f"{DEFAULT_MAX_TOKENS:,} tokens"),
                ("… with thinking", f"{DEFAULT_MAX_TOKENS_THINKING:,} tokens"),
                ("pause before another try", f"{fallback.MAX_BACKOFF_SECONDS:g} seconds"),
                ("pause at the provider's demand", f"{fallback.MAX_WAIT_SECONDS:g} seconds"),
                ("rest of a model that failed twice", f"{fallback.COOLDOWN_SECONDS:g} seconds"),
            ],
        ),
    )


def _provider(row: Provider) -> tuple[str, ...]:
    key = " or ".join(f"`{name}`" for name in row.key_env)
    return (
        f"`{row.name}`",
        row.wire,
        f"`{row.base_url}`" if row.base_url else "must be set",
        key or "none needed",
        f"`{row.default_model}`" if row.default_model else "the server's first",
    )


def _thinking(row: Provider) -> tuple[str, ...]:
    on, off = row.thinking_on.decode(), row.thinking_off.decode()
    budget = ""
    if row.wire == "anthropic":
        on = '"thinking":{"type":"adaptive","display":"summarized"}'
        budget = f"; up to 4.5 a budget: half of `max_tokens`, at least {MIN_THINKING_BUDGET:,}"
    return f"`{row.name}`", f"`{on}`{budget}", f"`{off}`" if off else ""


def _size(name: str, size: int) -> tuple[str, ...]:
    longest = catalogue.model_facts(name).max_output
    return f"`{name}`", f"{size:,}", f"{longest:,}" if longest else ""
