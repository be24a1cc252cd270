"""The names available to trees: node kinds, leaves and decorations.

Built-in kinds and those of plugins are registered in the same way: with `Registry.add_kind`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Unpack

from dodona.core.errors import LoadError
from dodona.core.extensions import Extension
from dodona.trees.language.node import NodeKind
from dodona.trees.runtime.leaves import (
    Decoration,
    F,
    Leaf,
    LeafFunction,
    LeafOptions,
    LeafResult,
    is_same_function,
    make_decoration,
    make_leaf,
    qualified_name,
)


class Registry:
    """Node kinds, leaves and decorations by name; each of the three has separate names."""

    def __init__(self, kinds: Iterator[NodeKind] | tuple[NodeKind, ...] = ()) -> None:
        self.kinds: dict[str, NodeKind] = {}
        self.leaves: dict[str, Leaf] = {}
        self.decorations: dict[str, Decoration] = {}
        for kind in kinds:
            self.add_kind(kind)

    def add(self, extensions: Iterable[Extension]) -> None:
        """Register the leaves and decorations among these extensions."""
        for extension in extensions:
            if isinstance(extension, Leaf):
                self.add_leaf(extension)
            elif isinstance(extension, Decoration):
                self.add_decoration(extension)

    def extended_with(self, other: Registry) -> Registry:
        """Return a registry with the names of both; those of the other one take precedence."""
        both = Registry()
        for registry in (self, other):
            both.kinds.update(registry.kinds)
            both.leaves.update(registry.leaves)
            both.decorations.update(registry.decorations)
        return both

    def add_kind(self, kind: NodeKind) -> None:
        if kind.name in self.kinds:
            raise LoadError(f"node kind '{kind.name}' is registered twice.")
        self.kinds[kind.name] = kind

    def add_leaf(self, leaf: Leaf) -> None:
        existing = self.leaves.get(leaf.name)
        if existing is not None:
            _reject_duplicate("leaf", leaf.name, existing.function, leaf.function)
        self.leaves[leaf.name] = leaf

    def add_decoration(self, decoration: Decoration) -> None:
        existing = self.decorations.get(decoration.name)
        if existing is not None:
            old, new = existing.enter.function, decoration.enter.function
            _reject_duplicate("decorator", decoration.name, old, new)
        self.decorations[decoration.name] = decoration

    def leaf(self, name: str, **declared: Unpack[LeafOptions]) -> Callable[[F], F]:
        """Register the decorated function under a name, for use with `:fn`."""

        def register(function: F) -> F:
            self.add_leaf(make_leaf(name, function, **declared))
            return function

        return register

    def decorator(
        self,
        name: str,
        *,
        reads: tuple[str, ...] = (),
        writes: tuple[str, ...] = (),
        step: bool = False,
    ) -> Callable[[Callable[..., LeafResult]], Decoration]:
        """Register the function to call before the child of `(decorator NAME CHILD)`."""

        def register(function: Callable[..., LeafResult]) -> Decoration:
            decoration = make_decoration(name, function, reads=reads, writes=writes, step=step)
            self.add_decoration(decoration)
            return decoration

        return register

    def find_leaf(self, name: str) -> Leaf | None:
        """Return the leaf that `:fn`, or the name of an action or condition, refers to."""
        return self.leaves.get(name)

    def find_leaf_node(self, name: str) -> Leaf | None:
        """Return the leaf that a head symbol refers to if it is not a node kind."""
        return self.leaves.get(name)

    def find_decoration(self, name: str) -> Decoration | None:
        return self.decorations.get(name)


def _reject_duplicate(noun: str, name: str, old: LeafFunction, new: LeafFunction) -> None:
    if not is_same_function(old, new):
        raise LoadError(
            f"{noun} '{name}' is registered twice: in {qualified_name(old)} "
            f"and in {qualified_name(new)}.",
            hint="Give one of them another name.",
        )
