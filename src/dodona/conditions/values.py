"""Values as conditions see them: plain JSON of a size that any expression can go through."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import isfinite
from sys import float_info
from typing import Any, Final, cast

LONGEST_TEXT: Final = 2_000  # characters
LONGEST_LIST: Final = 200  # members of a list, keys of an object
MOST_VALUES: Final = 1_000  # in one name's value; each 200 characters of a text are one more
DEEPEST: Final = 12
_WIDEST: Final = 2**63


class Given(Mapping[str, Any]):
    """Values by name, bounded when they are first looked at: several conditions share the work."""

    __slots__ = ("_beneath", "_raw", "_seen")

    def __init__(self, values: Mapping[str, Any], *, beneath: Given | None = None) -> None:
        """`beneath` has what `values` has not."""
        self._raw = values
        self._beneath = beneath
        self._seen: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name in self._seen:
            return self._seen[name]
        if self._beneath is not None and name not in self._raw:
            return self._beneath[name]
        self._seen[name] = found = bounded(self._raw[name])
        return found

    def __contains__(self, name: object) -> bool:
        return name in self._raw or (self._beneath is not None and name in self._beneath)

    def __iter__(self) -> Iterator[str]:
        yield from {**dict.fromkeys(self._beneath or ()), **dict.fromkeys(self._raw)}

    def __len__(self) -> int:
        return sum(1 for _ in self)


def bounded(value: Any) -> Any:
    """The value with long texts and lists cut, as plain JSON.

    What is no JSON becomes its text, what is too deep or too many becomes null.
    """
    return _Bounding().bound(value, DEEPEST)


class _Bounding:
    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = MOST_VALUES

    def bound(self, value: Any, depth: int) -> Any:
        kind = cast("type[Any]", type(value))
        if kind is str:
            self._left -= len(value) // 200 if len(value) < LONGEST_TEXT else LONGEST_TEXT // 200
            return _text(value)
        if kind is int:
            # What CEL's 64 bits cannot hold keeps its size, if not its last digits.
            return value if -_WIDEST <= value < _WIDEST else _wide(value)
        if kind is float:
            return value if isfinite(value) else None  # as JSON has it
        if value is None or kind is bool:
            return value
        if isinstance(value, Mapping):
            return self._object(cast("Mapping[Any, Any]", value), depth - 1)
        if isinstance(value, list | tuple):
            return self._list(cast("list[Any]", value), depth - 1)
        return _text(str(value))

    def _object(self, value: Mapping[Any, Any], depth: int) -> Any:
        if depth < 0:
            return None
        found: dict[str, Any] = {}
        for key, member in value.items():
            if not self._takes(len(found)):
                break
            found[_text(str(key))] = self.bound(member, depth)
        return found

    def _list(self, value: list[Any], depth: int) -> Any:
        if depth < 0:
            return None
        found: list[Any] = []
        for member in value:
            if not self._takes(len(found)):
                break
            found.append(self.bound(member, depth))
        return found

    def _takes(self, taken: int) -> bool:
        self._left -= 1
        return taken < LONGEST_LIST and self._left >= 0


def _text(value: str) -> str:
    if len(value) > LONGEST_TEXT:
        value = value[:LONGEST_TEXT]
    # Half a pair of UTF-16 is no text to CEL: json.loads makes such of "\ud800".
    return value if value.isascii() else value.encode(errors="replace").decode()


def _wide(value: int) -> float:
    try:
        return float(value)
    except OverflowError:
        return float_info.max if value > 0 else -float_info.max
