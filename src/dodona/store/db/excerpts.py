"""Values truncated for display."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from math import isfinite
from typing import Any, Final, cast

from dodona.store.db.text import Redact, to_storable

MAX_TEXT_CHARS: Final = 2_000  # per text
MAX_ITEMS: Final = 50  # per list or map
MAX_DEPTH: Final = 8
_MAX_EXACT_INT: Final = 2**53
_MAX_INT_BITS: Final = 1_000  # Python refuses to format much longer numbers
_ELLIPSIS: Final = "…"


def excerpt(values: Mapping[str, Any], redact: Redact, *, max_chars: int) -> dict[str, Any]:
    """Return JSON-compatible values of about `max_chars` characters; … marks omissions."""
    return _ExcerptBuilder(redact, max_chars).cut_map(values, 0)


def shorten(text: str, redact: Redact) -> str:
    """Return a text, truncated at MAX_TEXT_CHARS."""
    return _ExcerptBuilder(redact, MAX_TEXT_CHARS).cut_text(text)


class _ExcerptBuilder:
    def __init__(self, redact: Redact, max_chars: int) -> None:
        self._redact = redact
        self._remaining = max_chars

    def cut_map(self, values: Mapping[Any, Any], depth: int) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key, value in islice(values.items(), MAX_ITEMS):
            if self._remaining <= 0:
                break
            name = self.cut_text(str(key))  # before its value uses up the rest
            result[name] = self._cut_value(value, depth + 1)
        if len(result) < len(values):
            result[_ELLIPSIS] = f"{len(values) - len(result):,} more"
        return result

    def _cut_list(self, values: Iterable[Any], depth: int) -> list[Any]:
        items = list(values)
        result: list[Any] = []
        for value in items[:MAX_ITEMS]:
            if self._remaining <= 0:
                break
            result.append(self._cut_value(value, depth + 1))
        if len(result) < len(items):
            result.append(f"{_ELLIPSIS} {len(items) - len(result):,} more")
        return result

    def _cut_value(self, value: Any, depth: int) -> Any:
        self._remaining -= 20  # the most that a number takes, or the punctuation around a text
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
        """Return a number unchanged if every JSON parser reads it exactly."""
        if isinstance(value, int) and abs(value) >= _MAX_EXACT_INT:
            return self.cut_text(str(value)) if value.bit_length() < _MAX_INT_BITS else _ELLIPSIS
        return value if value is None or isfinite(value) else str(value)

    def cut_text(self, text: str) -> str:
        # Redact first: half of a secret would not be recognised.
        text = to_storable(self._redact(text))
        length = max(0, min(MAX_TEXT_CHARS, self._remaining))
        self._remaining -= min(len(text), length)
        if len(text) <= length:
            return text
        return f"{text[:length]}{_ELLIPSIS} ({len(text) - length:,} more characters)"
