"""Values cut to a size, for people to look at."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from math import isfinite
from typing import Any, Final, cast

from dodona.store.db.text import Redact, storable

LONGEST_TEXT: Final = 2_000  # characters of one text
MOST_ITEMS: Final = 50  # of one list or map
DEEPEST: Final = 8
_EXACT: Final = 2**53
_MOST_BITS: Final = 1_000  # Python refuses to write numbers that are far longer
_CUT: Final = "…"


def excerpt(values: Mapping[str, Any], hide: Redact, *, most: int) -> dict[str, Any]:
    """The values as JSON takes them, of about `most` characters; … marks what is left out."""
    return _Excerpt(hide, most).map(values, 0)


def short(text: str, hide: Redact) -> str:
    """A text, cut at LONGEST_TEXT."""
    return _Excerpt(hide, LONGEST_TEXT).text(text)


class _Excerpt:
    def __init__(self, hide: Redact, most: int) -> None:
        self._hide = hide
        self._room = most

    def map(self, values: Mapping[Any, Any], depth: int) -> dict[str, Any]:
        shown: dict[str, Any] = {}
        for key, value in islice(values.items(), MOST_ITEMS):
            if self._room <= 0:
                break
            name = self.text(str(key))  # before its value takes the room
            shown[name] = self._value(value, depth + 1)
        if len(shown) < len(values):
            shown[_CUT] = f"{len(values) - len(shown):,} more"
        return shown

    def _list(self, values: Iterable[Any], depth: int) -> list[Any]:
        every = list(values)
        shown: list[Any] = []
        for value in every[:MOST_ITEMS]:
            if self._room <= 0:
                break
            shown.append(self._value(value, depth + 1))
        if len(shown) < len(every):
            shown.append(f"{_CUT} {len(every) - len(shown):,} more")
        return shown

    def _value(self, value: Any, depth: int) -> Any:
        self._room -= 20  # what a number takes at most, or the signs around a text
        match value:
            case str():
                return self.text(value)
            case dict() if depth < DEEPEST:
                return self.map(cast("dict[Any, Any]", value), depth)
            case list() | tuple() if depth < DEEPEST:
                return self._list(cast("list[Any]", value), depth)
            case dict() | list() | tuple():
                return _CUT
            case None | bool() | int() | float():
                return self._number(value)
            case _:
                return self.text(str(value))

    def _number(self, value: float | None) -> Any:
        """As it is, if whoever reads JSON reads the same."""
        if isinstance(value, int) and abs(value) >= _EXACT:
            return self.text(str(value)) if value.bit_length() < _MOST_BITS else _CUT
        return value if value is None or isfinite(value) else str(value)

    def text(self, text: str) -> str:
        # Secrets first: a part of one would not be known.
        text = storable(self._hide(text))
        kept = max(0, min(LONGEST_TEXT, self._room))
        self._room -= min(len(text), kept)
        if len(text) <= kept:
            return text
        return f"{text[:kept]}{_CUT} ({len(text) - kept:,} more characters)"
