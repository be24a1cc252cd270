"""Offline facts about models: context window, output limit, vocabulary, thinking.

A name is looked up as given, then normalized, then in genai-prices, then by the longest known
prefix; otherwise a default applies. `ModelFacts.source` records which of these matched.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, TypeVar

from dodona.models.catalogue.data import (
    DEFAULT_MODEL_CONTEXT_SIZES,
    FAMILIES,
    MAX_OUTPUTS,
    THINKING_MODELS,
    UNKNOWN_FAMILY,
)

# If the assumed window is too small, the conversation is summarized early; if it is too large, the
# call fails. Most unknown models are small ones that run locally.
DEFAULT_CONTEXT_SIZE: Final = 32_768
# Clients choose the names, and genai-prices caches every name it looks up.
MAX_NAME_CHARS: Final = 200

# Suffixes with which providers select a variant of the same model; `:70b` is not one of them.
_VARIANTS = frozenset(
    {"batch", "beta", "cloud", "exacto", "extended", "floor"}
    | {"free", "latest", "nitro", "online", "thinking"}
)
_DATE = re.compile(r"[-@](?:20\d{6}|20\d\d-\d\d-\d\d)$")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """Facts about one model. `max_output` is None if it is unknown.

    `context_size` is the model's maximum; a local server may run with less.
    `token_factor` is the expected number of the model's tokens per token of `vocabulary`.
    """

    name: str
    context_size: int
    max_output: int | None
    vocabulary: str
    token_factor: float
    source: str


@lru_cache(maxsize=512)
def model_facts(model: str) -> ModelFacts:
    """Return the facts about a model, by any of its names. Never fails."""
    name = normalize_name(model)
    size, source = _context_size(model, name)
    family = _longest_prefix_match(_FAMILIES, name)
    output = _longest_prefix_match(_MAX_OUTPUTS, name)
    traits = family[1] if family else UNKNOWN_FAMILY
    return ModelFacts(
        name=name,
        context_size=size,
        max_output=output[1] if output else None,
        vocabulary=traits.vocabulary,
        token_factor=traits.factor,
        source=source,
    )


def accepts_thinking(model: str) -> bool:
    """Return whether a model is known to accept parameters for thinking."""
    name = normalize_name(model)
    match = _longest_prefix_match(_THINKING_MODELS, name)
    # `qwen3:30b-instruct` and its like are variants that do not think.
    return match is not None and match[1] and "instruct" not in name.split("-")


def normalize_name(model: str) -> str:
    """Normalize a model name: no vendor, variant or date; words separated by hyphens.

    `anthropic/claude-sonnet-4.5:thinking` and `claude-sonnet-4-5-20250929` become
    `claude-sonnet-4-5`; `llama3.3:70b` becomes `llama-3-3-70b`.
    """
    name, _, variant = model[:MAX_NAME_CHARS].lower().rpartition("/")[2].partition(":")
    name = _DATE.sub("", name.removesuffix("-latest"))
    if variant and variant not in _VARIANTS:
        name = f"{name}-{variant}"
    return re.sub(r"[._:@\s]+|(?<=[a-z])(?=\d)", "-", name).strip("-")


def _context_size(model: str, name: str) -> tuple[int, str]:
    if model in DEFAULT_MODEL_CONTEXT_SIZES:
        return DEFAULT_MODEL_CONTEXT_SIZES[model], "table"
    if name in _CONTEXT_SIZES:
        return _CONTEXT_SIZES[name], "table"
    if size := _published_context_size(model):
        return size, "genai-prices"
    if match := _longest_prefix_match(_CONTEXT_SIZES, name):
        return match[1], f"table: {match[0]}"
    return DEFAULT_CONTEXT_SIZE, "default"


def _published_context_size(model: str) -> int | None:
    """Return the context window from the data that genai-prices ships; None if unknown."""
    if len(model) > MAX_NAME_CHARS:
        return None
    # The import takes a third of a second, and most lookups never get here.
    from genai_prices.data_snapshot import get_snapshot  # noqa: PLC0415

    snapshot = get_snapshot()
    for reference, provider in _name_candidates(model):
        try:
            _, entry = snapshot.find_provider_model(reference, None, provider, None)
        except LookupError:
            continue
        if entry.context_window:
            return entry.context_window
    return None


def _name_candidates(model: str) -> Iterator[tuple[str, str | None]]:
    """Yield names under which genai-prices may list a model, each with its provider."""
    plain = model.removeprefix("models/").removesuffix(":thinking")
    if "/" in plain:
        yield plain, "openrouter"
    yield plain.rpartition("/")[2].partition(":")[0], None


def _longest_prefix_match(table: Mapping[str, T], name: str) -> tuple[str, T] | None:
    """Return the longest prefix of a name, in whole words, that is in the table, and its entry."""
    words = name.split("-")
    for length in range(len(words), 0, -1):
        prefix = "-".join(words[:length])
        if prefix in table:
            return prefix, table[prefix]
    return None


_CONTEXT_SIZES = {normalize_name(name): size for name, size in DEFAULT_MODEL_CONTEXT_SIZES.items()}
_FAMILIES = {normalize_name(name): family for name, family in FAMILIES.items()}
_MAX_OUTPUTS = {normalize_name(name): limit for name, limit in MAX_OUTPUTS.items()}
_THINKING_MODELS = {normalize_name(name): thinks for name, thinks in THINKING_MODELS.items()}
