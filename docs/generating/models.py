"""Generates models.md from the providers and the model catalogue."""

from __future__ import annotations

from dodona.models import PROVIDERS, Provider, fallback, sse, wire
from dodona.models.anthropic.request import (
    DEFAULT_MAX_TOKENS,
    DEFAULT_MAX_TOKENS_THINKING,
    MIN_THINKING_BUDGET,
)
from dodona.models.catalogue import catalogue
from dodona.models.catalogue.data import DEFAULT_MODEL_CONTEXT_SIZES, THINKING_MODELS
from dodona.models.providers import THINKING_SUFFIX
from generating.writing import page, prose, table


def models_page() -> str:
    """Return the text of models.md."""
    return page(
        "# Models",
        prose("""[How to choose a model](../how-to/choose-a-model.md) explains which model Dodona
            uses, and [how to call a model](../how-to/call-a-model.md) how to call one from
            Python."""),
        "## Providers",
        prose("""If no provider is set, Dodona tries them in this order. `base_url` replaces the
            URL, and is required for `openai-compatible`. The key is the first variable that is set,
            or the content of `~/.dodona/credentials/PROVIDER`."""),
        table(
            ("provider", "protocol", "URL", "key", "default model"),
            [
                *map(_provider, PROVIDERS.values()),
                ("`extractive`", "none", "", "not needed", "`extractive`"),
                ("`scripted`", "none", "", "not needed", "required: a file of answers"),
            ],
        ),
        "### Thinking",
        prose(f"""`{THINKING_SUFFIX}` after the model name adds these parameters to each request.
            So does `thinking` in a request, `--thinking`, and `reasoning_effort` under `/v1`. The
            setting `thinking_enabled` adds them only for models that are known to accept them:
            names that start with one of the words below. `instruct` variants do not count. Any
            other model gets none of these parameters by default."""),
        table(("provider", "with thinking", "without"), [*map(_thinking, PROVIDERS.values())]),
        table(
            ("accept parameters for thinking", "do not"),
            [(_names(accepts=True), _names(accepts=False))],
        ),
        prose("""OpenAI models from GPT 5.2 on do not accept tools while they reason: with tools,
            Dodona sends `"reasoning_effort":"none"`."""),
        "## Context sizes",
        prose(f"""Dodona looks up the exact name, then the name without vendor, date and variant,
            then the installed genai-prices data, then the longest matching prefix in this table. An
            unknown model is assumed to have {catalogue.DEFAULT_CONTEXT_SIZE:,} tokens. The maximum
            output is that of the longest matching prefix; if the last column is empty, it is not
            known."""),
        table(
            ("model", "context size in tokens", "maximum output"),
            [_size(name, size) for name, size in DEFAULT_MODEL_CONTEXT_SIZES.items()],
        ),
        "## Limits",
        "Set the timeouts of a provider [in the config](config.md#agenttimeouts).",
        table(
            ("limit", "maximum"),
            [
                ("answer", f"{wire.MAX_ANSWER_BYTES:,} bytes"),
                ("event of a stream", f"{sse.MAX_EVENT_BYTES:,} bytes"),
                ("output of Anthropic models by default", f"{DEFAULT_MAX_TOKENS:,} tokens"),
                ("… with thinking", f"{DEFAULT_MAX_TOKENS_THINKING:,} tokens"),
                ("delay before a retry", f"{fallback.MAX_BACKOFF_SECONDS:g} seconds"),
                ("delay requested by the provider", f"{fallback.MAX_WAIT_SECONDS:g} seconds"),
                ("cooldown after two failures", f"{fallback.COOLDOWN_SECONDS:g} seconds"),
            ],
        ),
    )


def _provider(row: Provider) -> tuple[str, ...]:
    key = " or ".join(f"`{name}`" for name in row.key_env)
    return (
        f"`{row.name}`",
        row.wire,
        f"`{row.base_url}`" if row.base_url else "required",
        key or "not needed",
        f"`{row.default_model}`" if row.default_model else "the server's first model",
    )


def _names(*, accepts: bool) -> str:
    return ", ".join(f"`{name}`" for name, each in THINKING_MODELS.items() if each is accepts)


def _thinking(row: Provider) -> tuple[str, ...]:
    on, off = row.thinking_on.decode(), row.thinking_off.decode()
    budget = ""
    if row.wire == "anthropic":
        on = '"thinking":{"type":"adaptive","display":"summarized"}'
        budget = (
            "; for models up to 4.5, a budget of half of `max_tokens`, at least "
            f"{MIN_THINKING_BUDGET:,}"
        )
    return f"`{row.name}`", f"`{on}`{budget}", f"`{off}`" if off else ""


def _size(name: str, size: int) -> tuple[str, ...]:
    max_output = catalogue.model_facts(name).max_output
    return f"`{name}`", f"{size:,}", f"{max_output:,}" if max_output else ""
