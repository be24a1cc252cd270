"""The key-value state shared by the nodes of a run. Scopes nest: reads fall through outwards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from reprlib import Repr
from typing import Any, NoReturn

from dodona.core.errors import BlackboardError, KeyMissing, did_you_mean
from dodona.trees.language.schema import EMPTY_SCHEMA, UNSIZED_TYPES, Key, Schema

MAX_KEYS = 10_000
MAX_LENGTH = 64 * 1024 * 1024

_MISSING = object()
_SHORT_REPR = Repr()
_SHORT_REPR.maxstring = _SHORT_REPR.maxother = 100
_SHORT_REPR.maxlevel = 3


class Blackboard(MutableMapping[str, Any]):
    """One scope that keeps its writes: the scope of a tree, or of a parallel's child."""

    __slots__ = ("_fast_types", "_parent", "_values", "schema")

    def __init__(
        self,
        schema: Schema | None = None,
        values: Mapping[str, Any] | None = None,
        *,
        parent: Blackboard | None = None,
    ) -> None:
        self._parent = parent
        self._values: dict[str, Any] = {}
        if schema is not None:
            self._values = schema.defaults()
        elif parent is not None:
            schema = parent.schema
        self.schema: Schema = schema if schema is not None else EMPTY_SCHEMA
        self._fast_types: Mapping[str, frozenset[type]] = self.schema.fast_types
        if values:
            self.update(values)

    def __getitem__(self, key: str) -> Any:
        try:
            return self._values[key]
        except KeyError:
            return self._read_parent(key)

    def __setitem__(self, key: str, value: Any) -> None:
        # The common case, a declared key and a small value of its type, takes two lookups.
        if type(value) not in self._fast_types.get(key, ()):
            self.check_write(key, value)
        self._values[key] = value

    def __delitem__(self, key: str) -> NoReturn:
        raise BlackboardError(
            f"key ':{key}' cannot be deleted.", hint="Set it to nil (None) instead."
        )

    def __contains__(self, key: object) -> bool:
        return key in self._values or (self._parent is not None and key in self._parent)

    def __iter__(self) -> Iterator[str]:
        yield from self._values
        if self._parent is not None:
            yield from (key for key in self._parent if key not in self._values)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return f"Blackboard({dict(self)!r})"

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value, or `default` if no scope has the key."""
        value = self._values.get(key, _MISSING)
        if value is not _MISSING:
            return value
        return default if self._parent is None else self._parent.get(key, default)

    def check_write(self, key: str, value: Any) -> None:
        """Raise BlackboardError for a reserved key, a wrong type or a value that is too large."""
        if type(key) is not str or not key:
            raise BlackboardError(f"a key is a non-empty string (got {key!r}).")
        if key[0] == "_":
            raise BlackboardError(
                f"key ':{key}' is reserved for the runtime.",
                hint="Use a name without '_' in front.",
            )
        declared = self.schema.keys.get(key)
        if declared is not None:
            self.check(declared, value)
        elif key not in self._values and len(self._values) >= MAX_KEYS:
            raise BlackboardError(f"key ':{key}' exceeds the limit of {MAX_KEYS} keys per scope.")
        if (
            type(value) not in UNSIZED_TYPES
            and hasattr(value, "__len__")
            and len(value) > MAX_LENGTH
        ):
            raise BlackboardError(
                f"the value of ':{key}' is too large: {len(value)} of at most {MAX_LENGTH}.",
                hint="Save it to a file or the store, and write only its name here.",
            )

    def set_reserved(self, key: str, value: Any) -> None:
        """Write one of the runtime's reserved `_` keys."""
        self._values[key] = value

    def extend_schema(self, schema: Schema) -> None:
        """Add keys; existing keys keep their value and type."""
        self._values = {**schema.defaults(), **self._values}
        self.schema = self.schema.merge(schema)
        self._fast_types = self.schema.fast_types

    def own_values(self) -> Mapping[str, Any]:
        """Return the values written in this scope, without those of outer scopes."""
        return self._values

    def pop_values(self) -> dict[str, Any]:
        """Return the values written in this scope, and clear it."""
        values, self._values = self._values, {}
        return values

    def record_writes(self) -> StepBoard:
        """Return a view of this scope that records all writes from now on."""
        return StepBoard(self, self._values, self._parent)

    def snapshot(self) -> dict[str, Any]:
        """Return every visible key with long values cut, for display, events and traces."""
        return {key: shorten(self[key]) for key in self}

    def check(self, key: Key, value: Any) -> None:
        """Raise BlackboardError for a value that the key does not take in this scope."""
        key.check(value)

    def _read_parent(self, key: str) -> Any:
        if self._parent is not None:
            return self._parent[key]
        raise KeyMissing(
            f"no key ':{key}' on the blackboard.",
            hint=did_you_mean(key, self._values) or "Declare it in :blackboard-schema, or set it.",
        )


class ItemScope(Blackboard):
    """The scope of a child whose writes are collected: it writes single items to a list key."""

    __slots__ = ()

    def check(self, key: Key, value: Any) -> None:
        if key.type != "list":
            key.check(value)


class LocalScope(Blackboard):
    """A scope with local keys; all other writes go to the outer scope."""

    __slots__ = ("_local", "_outer_scope")

    def __init__(
        self, parent: Blackboard, local: Schema | None = None, *, reserved: tuple[str, ...] = ()
    ) -> None:
        super().__init__(parent=parent)
        self._outer_scope = parent
        self._local = frozenset((*(local.keys if local else ()), *reserved))
        if local is not None:
            self._values = local.defaults()
            self.schema = local.merge(parent.schema)
            self._fast_types = self.schema.fast_types

    def __setitem__(self, key: str, value: Any) -> None:
        if key in self._local:
            super().__setitem__(key, value)
        else:
            self._outer_scope[key] = value

    def check(self, key: Key, value: Any) -> None:
        (super() if key.name in self._local else self._outer_scope).check(key, value)

    def set_reserved(self, key: str, value: Any) -> None:
        (super() if key in self._local else self._outer_scope).set_reserved(key, value)


class ThreadBoard(Blackboard):
    """The blackboard of a leaf in a thread: holds the leaf's writes until it has ended."""

    __slots__ = ("_target",)

    def __init__(self, target: Blackboard) -> None:
        super().__init__(parent=target)
        self._target = target

    def check(self, key: Key, value: Any) -> None:
        self._target.check(key, value)


class StepBoard(Blackboard):
    """The blackboard of a journalled step: the scope it runs in, with a record of its writes."""

    __slots__ = ("_target", "writes")

    def __init__(
        self, target: Blackboard, values: dict[str, Any], outer: Blackboard | None
    ) -> None:
        # One is created per step, so it is cheap: it reads the values of its target directly.
        self._values = values
        self._parent = outer
        self._target = target
        self.schema = target.schema
        self._fast_types = target.schema.fast_types
        self.writes: dict[str, Any] = {}

    def set_reserved(self, key: str, value: Any) -> None:
        self._target.set_reserved(key, value)

    def __setitem__(self, key: str, value: Any) -> None:
        self._target[key] = value
        self.writes[key] = value


def shorten(value: Any, limit: int = 200) -> Any:
    """Return a small value unchanged, and a short text for a large one."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return value if len(value) <= limit else f"{value[:limit]}… ({len(value)} characters)"
    text = _SHORT_REPR.repr(value)
    return text if len(text) <= limit else f"{text[:limit]}…"
