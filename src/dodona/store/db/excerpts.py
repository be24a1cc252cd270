"""Values cut to a size, for people to look at."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from math import isfinite
from typing import Any, Final, cast

from dodona.store.db.text import Redact, to_storable

MAX_TEXT_CHARS: Final = 2_000  # characters of one text
MAX_ITEMS: Final = 50  # of one list or map
MAX_DEPTH: Final = 8
_MAX_EXACT_INT: Final = 2**53
_MAX_INT_BITS: Final = 1_000  # Python refuses to write numbers that are far longer
_ELLIPSIS: Final = "…"


def excerpt(values: Mapping[str, Any], redact: Redact, *, max_chars: int) -> dict[str, Any]:
    """The values as JSON takes them, of about `most` characters; … marks what is left out."""
    return _ExcerptBuilder(redact, max_chars).cut_map(values, 0)


def shorten(text: str, redact: Redact) -> str:
    """A text, cut at LONGEST_TEXT."""
    return _ExcerptBuilder(redact, MAX_TEXT_CHARS).cut_text(text)


class _ExcerptBuilder:
    def __init__(self, redact: Redact, max_chars: int) -> None:
        self._redact = redact
        self._remaining = max_chars

    def cut_map(self, values: Mapping[Any, Any], depth: int) -> dict[str, Any]:
        shown: dict[str, Any] = {}
        for key, value in islice(values.items(), MAX_ITEMS):
            if self._remaining <= 0:
                break
            name = self.cut_text(str(key))  # before its value takes the room
            shown[name] = self._cut_value(value, depth + 1)
        if len(shown) < len(values):
            shown[_ELLIPSIS] = f"{len(values) - len(shown):,} more"
        return shown

    def _cut_list(self, values: Iterable[Any], depth: int) -> list[Any]:
        every = list(values)
        shown: list[Any] = []
        for value in every[:MAX_ITEMS]:
            if self._remaining <= 0:
                break
            shown.append(self._cut_value(value, depth + 1))
        if len(shown) < len(every):
            shown.append(f"{_ELLIPSIS} {len(every) - len(shown):,} more")
        return shown

    def _cut_value(self, value: Any, depth: int) -> Any:
        self._remaining -= 20  # what a number takes at most, or the signs around a text
        match value:
            case str():
                return self.cut_text(value)
            case dict() if depth < MAX_DEPTH:
                return self.cut_map(cast("dict[Any, Any]", value), depth)
            case list() | tuple() if depth < MAX_DEPTH:
                return self._cut_list(cast("list[Any]", value), depth)
            case dict() | list() | tuple():
                return _ELLIPSIS
            case None | bool() | int() | float():
                return self._cut_number(value)
            case _:
                return self.cut_text(str(value))

    def _cut_number(self, value: float | None) -> Any:
        """As it is, if whoever reads JSON reads the same."""
        if isinstance(value, int) and abs(value) >= _MAX_EXACT_INT:
            return self.cut_text(str(value)) if value.bit_length() < _MAX_INT_BITS else _ELLIPSIS
        return value if value is None or isfinite(value) else str(value)

    def cut_text(self, text: str) -> str:
        # Secrets first: a part of one would not be known.
        text = to_storable(self._redact(text))
        kept = max(0, min(MAX_TEXT_CHARS, self._remaining))
        self._remaining -= min(len(text), kept)
        if len(text) <= kept:
            return text
        return f"{text[:kept]}{_ELLIPSIS} ({len(text) - kept:,} more characters)"
