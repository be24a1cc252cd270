"""What the nodes of a run know. Scopes nest: reads look outwards, writes stay where they belong."""

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
    """One scope. Writes stay in it: this is the tree's scope, or that of a parallel's child."""

    __slots__ = ("_parent", "_quick", "_values", "schema")

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
        self._quick: Mapping[str, frozenset[type]] = self.schema.quick
        if values:
            self.update(values)

    def __getitem__(self, key: str) -> Any:
        try:
            return self._values[key]
        except KeyError:
            return self._read_parent(key)

    def __setitem__(self, key: str, value: Any) -> None:
        # A declared key and a small value of its type: the common case, in two lookups.
        if type(value) not in self._quick.get(key, ()):
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
        """The value, or `default` when no scope has the key."""
        value = self._values.get(key, _MISSING)
        if value is not _MISSING:
            return value
        return default if self._parent is None else self._parent.get(key, default)

    def check_write(self, key: str, value: Any) -> None:
        """Refuse what may not be written: reserved keys, wrong types, values without bounds."""
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
            raise BlackboardError(f"key ':{key}' is one too many: a scope holds {MAX_KEYS} keys.")
        if (
            type(value) not in UNSIZED_TYPES
            and hasattr(value, "__len__")
            and len(value) > MAX_LENGTH
        ):
            raise BlackboardError(
                f"the value of ':{key}' is too large: {len(value)} of at most {MAX_LENGTH}.",
                hint="Keep it in a file or the store, and its name here.",
            )

    def set_reserved(self, key: str, value: Any) -> None:
        """Write one of the runtime's own `_` keys."""
        self._values[key] = value

    def extend_schema(self, schema: Schema) -> None:
        """Take in more keys; those that are here already keep their value and type."""
        self._values = {**schema.defaults(), **self._values}
        self.schema = self.schema.merge(schema)
        self._quick = self.schema.quick

    def own_values(self) -> Mapping[str, Any]:
        """What was written in this very scope."""
        return self._values

    def pop_values(self) -> dict[str, Any]:
        """What was written in this very scope; it is empty afterwards."""
        taken, self._values = self._values, {}
        return taken

    def record_writes(self) -> StepBoard:
        """This very scope, with a note of all that is written from now on."""
        return StepBoard(self, self._values, self._parent)

    def snapshot(self) -> dict[str, Any]:
        """Every visible key, with long values cut: for people, events and traces."""
        return {key: shorten(self[key]) for key in self}

    def check(self, key: Key, value: Any) -> None:
        """Refuse a value that this scope's key does not take."""
        key.check(value)

    def _read_parent(self, key: str) -> Any:
        if self._parent is not None:
            return self._parent[key]
        raise KeyMissing(
            f"no key ':{key}' on the blackboard.",
            hint=did_you_mean(key, self._values) or "Declare it in :blackboard-schema, or set it.",
        )


class ItemScope(Blackboard):
    """The scope of a child whose writes are collected: to a list it writes single items."""

    __slots__ = ()

    def check(self, key: Key, value: Any) -> None:
        if key.type != "list":
            key.check(value)


class LocalScope(Blackboard):
    """A scope with some keys of its own; every other write goes outwards."""

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
            self._quick = self.schema.quick

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
    """What a leaf in a thread sees: what it writes is kept here until it has ended."""

    __slots__ = ("_target",)

    def __init__(self, target: Blackboard) -> None:
        super().__init__(parent=target)
        self._target = target

    def check(self, key: Key, value: Any) -> None:
        self._target.check(key, value)


class StepBoard(Blackboard):
    """What a journalled step sees: the scope it runs in, and a note of all it writes there."""

    __slots__ = ("_target", "writes")

    def __init__(
        self, target: Blackboard, values: dict[str, Any], outer: Blackboard | None
    ) -> None:
        # No scope of its own, it reads where its target does: one is made for every step.
        self._values = values
        self._parent = outer
        self._target = target
        self.schema = target.schema
        self._quick = target.schema.quick
        self.writes: dict[str, Any] = {}

    def set_reserved(self, key: str, value: Any) -> None:
        self._target.set_reserved(key, value)

    def __setitem__(self, key: str, value: Any) -> None:
        self._target[key] = value
        self.writes[key] = value


def shorten(value: Any, limit: int = 200) -> Any:
    """The value itself when it is small, otherwise a short text of it."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return value if len(value) <= limit else f"{value[:limit]}… ({len(value)} characters)"
    text = _SHORT_REPR.repr(value)
    return text if len(text) <= limit else f"{text[:limit]}…"
