"""Bound the values of a condition: plain JSON, small enough for any expression."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import isfinite
from sys import float_info
from typing import Any, Final, cast

MAX_TEXT_CHARS: Final = 2_000
MAX_LIST_LENGTH: Final = 200  # elements of a list, keys of an object
MAX_VALUES: Final = 1_000  # per name or field; every 200 characters of a string count as one more
MAX_DEPTH: Final = 12
_INT64_LIMIT: Final = 2**63


class LazyFields(Mapping[str, Any]):
    """An object with fields that are built on first access: a function instead of a value."""

    __slots__ = ("_fields",)

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._fields = dict(fields)

    def __getitem__(self, name: str) -> Any:
        value = self._fields[name]
        if callable(value):
            value = self._fields[name] = value()
        return value

    def __contains__(self, name: object) -> bool:
        return name in self._fields

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)


class BoundedValues(Mapping[str, Any]):
    """Values by name, bounded on first access, so that several conditions share the work."""

    __slots__ = ("_bounded", "_fallback", "_raw")

    def __init__(self, values: Mapping[str, Any], *, fallback: BoundedValues | None = None) -> None:
        """`fallback` provides the names that are not in `values`."""
        self._raw = values
        self._fallback = fallback
        self._bounded: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name in self._bounded:
            return self._bounded[name]
        if self._fallback is not None and name not in self._raw:
            return self._fallback[name]
        self._bounded[name] = bounded = bound_value(self._raw[name])
        return bounded

    def select_fields(self, name: str, fields: Sequence[str]) -> Any:
        """Return an object with only these fields, each of them bounded; another value whole."""
        if self._fallback is not None and name not in self._raw:
            return self._fallback.select_fields(name, fields)
        value = self._raw[name]
        if not isinstance(value, Mapping):
            return self[name]
        selected: dict[str, Any] = {}
        for field in fields:
            if field in value:
                key = f"{name}.{field}"
                if key not in self._bounded:
                    self._bounded[key] = bound_value(value[field])
                selected[field] = self._bounded[key]
        return selected

    def __contains__(self, name: object) -> bool:
        return name in self._raw or (self._fallback is not None and name in self._fallback)

    def __iter__(self) -> Iterator[str]:
        yield from {**dict.fromkeys(self._fallback or ()), **dict.fromkeys(self._raw)}

    def __len__(self) -> int:
        return sum(1 for _ in self)


def bound_value(value: Any) -> Any:
    """Return the value as plain JSON, with long strings and lists truncated.

    Other objects become strings. Values nested too deeply become null.
    """
    return _ValueBounder().bound(value, MAX_DEPTH)


class _ValueBounder:
    __slots__ = ("_remaining",)

    def __init__(self) -> None:
        self._remaining = MAX_VALUES

    def bound(self, value: Any, depth: int) -> Any:
        kind = cast("type[Any]", type(value))
        if kind is str:
            self._remaining -= (
                len(value) // 200 if len(value) < MAX_TEXT_CHARS else MAX_TEXT_CHARS // 200
            )
            return _bound_text(value)
        if kind is int:
            # CEL integers have 64 bits; larger ones become floats and lose their last digits.
            return value if -_INT64_LIMIT <= value < _INT64_LIMIT else _to_float(value)
        if kind is float:
            return value if isfinite(value) else None  # JSON has no NaN or Infinity
        if value is None or kind is bool:
            return value
        if isinstance(value, Mapping):
            return self._bound_object(cast("Mapping[Any, Any]", value), depth - 1)
        if isinstance(value, list | tuple):
            return self._bound_list(cast("list[Any]", value), depth - 1)
        return _bound_text(str(value))

    def _bound_object(self, value: Mapping[Any, Any], depth: int) -> Any:
        if depth < 0:
            return None
        result: dict[str, Any] = {}
        for key, member in value.items():
            if not self._has_room(len(result)):
                break
            result[_bound_text(str(key))] = self.bound(member, depth)
        return result

    def _bound_list(self, value: list[Any], depth: int) -> Any:
        if depth < 0:
            return None
        result: list[Any] = []
        for member in value:
            if not self._has_room(len(result)):
                break
            result.append(self.bound(member, depth))
        return result

    def _has_room(self, count: int) -> bool:
        self._remaining -= 1
        return count < MAX_LIST_LENGTH and self._remaining >= 0


def _bound_text(value: str) -> str:
    if len(value) > MAX_TEXT_CHARS:
        value = value[:MAX_TEXT_CHARS]
    # CEL refuses lone surrogates, which json.loads produces from "\ud800".
    return value if value.isascii() else value.encode(errors="replace").decode()


def _to_float(value: int) -> float:
    try:
        return float(value)
    except OverflowError:
        return float_info.max if value > 0 else -float_info.max
