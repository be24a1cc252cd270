"""The schema of a tree's blackboard: the type, default and scope of each key.

:turn 0                                    a number, initially 0, in the tree's scope
:query nil                                 any type
:seen {:type :list :scope :global}         persists between runs
:draft {:default "" :scope :subtree}       reset each time the subtree starts
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, cast

from dodona.core.errors import BlackboardError

TYPES: Mapping[str, frozenset[type]] = {
    "any": frozenset(),
    "string": frozenset({str}),
    "integer": frozenset({int}),
    "number": frozenset({int, float}),
    "boolean": frozenset({bool}),
    "list": frozenset({list, tuple}),
    "map": frozenset({dict}),
}

# Only the runtime writes reserved keys.
RESERVED_KEYS: Mapping[str, str] = {
    "_item": "the current item of a for-each",
    "_index": "its index, from 0",
    "_error": "the last error: node, type, message",
    "_exhausted": "true when a repeater used up its iterations",
    "_status": "in :finally, how the tree ended: success, failure, cancelled, stuck, superseded",
    "_stuck": "in a recovery tree, the watchdog's report: nodes, seconds, count",
}


# Types without a length: a value of one of these cannot be too large.
UNSIZED_TYPES: frozenset[type] = frozenset({int, float, bool, type(None)})


class Scope(Enum):
    """The lifetime of a key: one run, one execution of a subtree, or across runs."""

    TREE = "tree"
    SUBTREE = "subtree"
    GLOBAL = "global"


@dataclass(frozen=True, slots=True)
class Key:
    """A declared blackboard key."""

    name: str
    type: str = "any"
    default: Any = None
    scope: Scope = Scope.TREE

    def check(self, value: Any) -> None:
        """Raise BlackboardError for a value of the wrong type. Every key takes nil ("not set")."""
        kinds = TYPES[self.type]
        # bool is an int to isinstance, but a flag in a counter is an error.
        if value is None or not kinds or type(value) in kinds:
            return
        if type(value) is not bool and isinstance(value, tuple(kinds)):
            return
        raise BlackboardError(
            f"key ':{self.name}' takes {with_article(self.type)} (got {describe(value)}).",
            hint="Change the value, or the key's type in :blackboard-schema.",
        )


@dataclass(frozen=True, slots=True)
class Schema:
    """Keys by name; `fast_types` holds the types that each key accepts without further checks.

    Every run starts with the defaults, so the set of defaults to copy is computed once.
    """

    keys: Mapping[str, Key] = field(default_factory=dict[str, Key])
    fast_types: Mapping[str, frozenset[type]] = field(init=False, repr=False, compare=False)
    _defaults: Mapping[str, Any] = field(init=False, repr=False, compare=False)
    _mutable_keys: tuple[str, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        fast_types = {
            name: UNSIZED_TYPES & (TYPES[key.type] or UNSIZED_TYPES)
            for name, key in self.keys.items()
        }
        defaults = {name: key.default for name, key in self.keys.items()}
        mutable_keys = tuple(
            name for name, value in defaults.items() if copy_if_mutable(value) is not value
        )
        object.__setattr__(self, "fast_types", fast_types)
        object.__setattr__(self, "_defaults", defaults)
        object.__setattr__(self, "_mutable_keys", mutable_keys)

    def for_scopes(self, *scopes: Scope) -> Schema:
        """Return a schema with only the keys of these scopes."""
        return Schema({name: key for name, key in self.keys.items() if key.scope in scopes})

    def merge(self, other: Schema) -> Schema:
        """Return a schema with the keys of both; ours win."""
        return Schema({**other.keys, **self.keys})

    def defaults(self) -> dict[str, Any]:
        """Return the values of a new scope. Containers are copied, so that runs share nothing."""
        values = {**self._defaults}
        for name in self._mutable_keys:
            values[name] = copy_if_mutable(values[name])
        return values


EMPTY_SCHEMA = Schema()


def copy_if_mutable(value: Any) -> Any:
    """Return the value, or a deep copy if it is mutable."""
    if type(value) is str or type(value) in UNSIZED_TYPES:
        return value
    if not value and type(value) in (list, dict):
        return type(value)()
    return copy.deepcopy(value)


def type_of(value: Any) -> str:
    """Return the schema type that a default implies."""
    if value is None:
        return "any"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    return {str: "string", list: "list", dict: "map"}[type(value)]


def with_article(noun: str) -> str:
    """Return the noun with "a" or "an"."""
    return f"an {noun}" if noun[0] in "aeiou" else f"a {noun}"


def describe(value: Any) -> str:
    """Describe a value for an error message: its type, and the value if it is short."""
    if value is None:
        return "nil"
    kind = cast("type[Any]", type(value))
    name = {str: "string", int: "integer", float: "float", bool: "boolean"}.get(kind)
    if name is None:
        return {list: "a list", tuple: "a list", dict: "a map"}.get(kind, f"a {kind.__name__}")
    text = f'"{value}"' if kind is str else str(value)
    if kind is bool:
        text = text.lower()
    return f"the {name} {text if len(text) <= 40 else text[:37] + '…'}"


def values_equal(left: Any, right: Any) -> bool:
    """Return whether two values are equal. Unlike in Python, true never equals 1, at any depth."""
    if left != right:
        return False
    if isinstance(left, dict):
        return all(
            values_equal(value, right[key]) for key, value in cast("dict[Any, Any]", left).items()
        )
    if isinstance(left, list | tuple):
        return all(map(values_equal, cast("list[Any]", left), right))
    return isinstance(left, bool) == isinstance(right, bool)


def merge_shared_keys(schemas: Iterable[Schema]) -> Schema:
    """Return the keys that several trees share in a run: all except the subtree-scoped ones."""
    shared = EMPTY_SCHEMA
    for schema in schemas:
        shared = shared.merge(schema.for_scopes(Scope.TREE, Scope.GLOBAL))
    return shared
