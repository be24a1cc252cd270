"""What is known of a model without asking anyone: its window, its longest answer, its vocabulary.

A name is looked up as it stands, then in one common spelling, then in genai-prices, then by the
longest beginning that the table knows; last comes a default. `source` says which of these it was.
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
    UNKNOWN_FAMILY,
)

# A window taken too small costs an early summary; taken too large, the call fails. Most models
# that nobody has heard of are small ones on somebody's own machine.
DEFAULT_CONTEXT_SIZE: Final = 32_768
# Names come in from clients, and genai-prices remembers each one it was asked for.
MAX_NAME_CHARS: Final = 200

# What providers hang on a name to choose a variant of the same model; `:70b` is not one of them.
_VARIANTS = frozenset(
    {"batch", "beta", "cloud", "exacto", "extended", "floor"}
    | {"free", "latest", "nitro", "online", "thinking"}
)
_DATE = re.compile(r"[-@](?:20\d{6}|20\d\d-\d\d-\d\d)$")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """One model as far as it is known. `max_output` is None when nobody says.

    The window is what the model can take; a local server may have been started with less.
    `token_factor` is the expected number of the model's own tokens per token of `vocabulary`;
    `has_own_vocabulary` says that they are the same.
    """

    name: str
    context_size: int
    max_output: int | None
    vocabulary: str
    token_factor: float
    can_think: bool
    can_call_tools: bool
    source: str

    @property
    def has_own_vocabulary(self) -> bool:
        return self.token_factor == 1.0


@lru_cache(maxsize=512)
def model_facts(model: str) -> ModelFacts:
    """What is known of a model under any of its names; never fails."""
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
        can_think=traits.can_think,
        can_call_tools=traits.can_call_tools,
        source=source,
    )


def normalize_name(model: str) -> str:
    """The one spelling of a name: no vendor, no variant, no date; words parted by hyphens.

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
    if found := _longest_prefix_match(_CONTEXT_SIZES, name):
        return found[1], f"table: {found[0]}"
    return DEFAULT_CONTEXT_SIZE, "default"


def _published_context_size(model: str) -> int | None:
    """The window that genai-prices has for a model, from the data it was installed with."""
    if len(model) > MAX_NAME_CHARS:
        return None
    # Importing it takes a third of a second, and most names are answered before.
    from genai_prices.data_snapshot import get_snapshot  # noqa: PLC0415

    snapshot = get_snapshot()
    for reference, provider in _name_candidates(model):
        try:
            _, found = snapshot.find_provider_model(reference, None, provider, None)
        except LookupError:
            continue
        if found.context_window:
            return found.context_window
    return None


def _name_candidates(model: str) -> Iterator[tuple[str, str | None]]:
    """The names genai-prices may know a model by, each with the provider to look at."""
    plain = model.removeprefix("models/").removesuffix(":thinking")
    if "/" in plain:
        yield plain, "openrouter"
    yield plain.rpartition("/")[2].partition(":")[0], None


def _longest_prefix_match(table: Mapping[str, T], name: str) -> tuple[str, T] | None:
    """The entry for the longest beginning of a name, in whole words, and that beginning."""
    words = name.split("-")
    for length in range(len(words), 0, -1):
        start = "-".join(words[:length])
        if start in table:
            return start, table[start]
    return None


_CONTEXT_SIZES = {normalize_name(name): size for name, size in DEFAULT_MODEL_CONTEXT_SIZES.items()}
_FAMILIES = {normalize_name(name): family for name, family in FAMILIES.items()}
_MAX_OUTPUTS = {normalize_name(name): most for name, most in MAX_OUTPUTS.items()}
