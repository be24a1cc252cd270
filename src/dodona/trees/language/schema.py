"""What a tree's blackboard holds: each key's type, default and scope.

:turn 0                                    a number, 0 at first, in the tree's scope
:query nil                                 anything
:seen {:type :list :scope :global}         kept from run to run
:draft {:default "" :scope :subtree}       fresh each time the subtree starts
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

# Reserved keys are written by the runtime only.
RESERVED_KEYS: Mapping[str, str] = {
    "_item": "the item a for-each is at",
    "_index": "its index, from 0",
    "_error": "the last error: node, type, message",
    "_exhausted": "true when a repeater used up its iterations",
    "_status": "in :finally, how the tree ended: success, failure, cancelled, stuck, superseded",
    "_stuck": "in a recovery tree, what the watchdog saw: nodes, seconds, count",
}


# Types without a length: a value of one of these cannot be too large.
UNSIZED_TYPES: frozenset[type] = frozenset({int, float, bool, type(None)})


class Scope(Enum):
    TREE = "tree"
    SUBTREE = "subtree"
    GLOBAL = "global"


@dataclass(frozen=True, slots=True)
class Key:
    name: str
    type: str = "any"
    default: Any = None
    scope: Scope = Scope.TREE

    def check(self, value: Any) -> None:
        """Refuse a value of another type. nil is taken everywhere: it means "not set"."""
        kinds = TYPES[self.type]
        # bool is an int to isinstance, and a flag in a counter is a mistake.
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
    """Keys by name; `quick` holds the types that each takes without a closer look.

    Every run begins with the defaults: which of them must be copied is found out once.
    """

    keys: Mapping[str, Key] = field(default_factory=dict[str, Key])
    quick: Mapping[str, frozenset[type]] = field(init=False, repr=False, compare=False)
    _defaults: Mapping[str, Any] = field(init=False, repr=False, compare=False)
    _copied: tuple[str, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        quick = {
            name: UNSIZED_TYPES & (TYPES[key.type] or UNSIZED_TYPES)
            for name, key in self.keys.items()
        }
        defaults = {name: key.default for name, key in self.keys.items()}
        copied = tuple(
            name for name, value in defaults.items() if copy_if_mutable(value) is not value
        )
        object.__setattr__(self, "quick", quick)
        object.__setattr__(self, "_defaults", defaults)
        object.__setattr__(self, "_copied", copied)

    def for_scopes(self, *scopes: Scope) -> Schema:
        """The keys of these scopes only."""
        return Schema({name: key for name, key in self.keys.items() if key.scope in scopes})

    def merge(self, other: Schema) -> Schema:
        """Ours and theirs; where both declare a key, ours."""
        return Schema({**other.keys, **self.keys})

    def defaults(self) -> dict[str, Any]:
        """The values of a fresh scope; containers are copies, so that runs share nothing."""
        values = {**self._defaults}
        for name in self._copied:
            values[name] = copy_if_mutable(values[name])
        return values


EMPTY_SCHEMA = Schema()


def copy_if_mutable(value: Any) -> Any:
    """The value, or a copy of it when it could be changed."""
    if type(value) is str or type(value) in UNSIZED_TYPES:
        return value
    if not value and type(value) in (list, dict):
        return type(value)()
    return copy.deepcopy(value)


def type_of(value: Any) -> str:
    """The schema type a default stands for."""
    if value is None:
        return "any"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    return {str: "string", list: "list", dict: "map"}[type(value)]


def with_article(noun: str) -> str:
    return f"an {noun}" if noun[0] in "aeiou" else f"a {noun}"


def describe(value: Any) -> str:
    """A value as errors name it, in the words of the language: its kind and, when short, itself."""
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
    """Are these one value? Unlike in Python, true is not 1, at any depth."""
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
    """Keys that several trees share in one run: all but their subtree-scoped ones."""
    shared = EMPTY_SCHEMA
    for schema in schemas:
        shared = shared.merge(schema.for_scopes(Scope.TREE, Scope.GLOBAL))
    return shared
