"""What trees may name: node kinds, leaves and decorations.

Built-in kinds enter by the same door as a plugin's: `Registry.add_kind`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from dodona.core.errors import LoadError
from dodona.core.ports.journal import Effect
from dodona.trees.language.node import NodeKind
from dodona.trees.runtime.leaves import (
    Decoration,
    EffectFunction,
    F,
    Leaf,
    LeafFunction,
    LeafResult,
    RequestFunction,
    is_same_function,
    make_decoration,
    make_leaf,
    qualified_name,
)


class Registry:
    """One set of names. Names are unique within their sort."""

    def __init__(self, kinds: Iterator[NodeKind] | tuple[NodeKind, ...] = ()) -> None:
        self.kinds: dict[str, NodeKind] = {}
        self.leaves: dict[str, Leaf] = {}
        self.decorations: dict[str, Decoration] = {}
        for kind in kinds:
            self.add_kind(kind)

    def add_kind(self, kind: NodeKind) -> None:
        if kind.name in self.kinds:
            raise LoadError(f"node kind '{kind.name}' is registered twice.")
        self.kinds[kind.name] = kind

    def add_leaf(self, leaf: Leaf) -> None:
        known = self.leaves.get(leaf.name)
        if known is not None:
            _reject_duplicate("leaf", leaf.name, known.function, leaf.function)
        self.leaves[leaf.name] = leaf

    def add_decoration(self, decoration: Decoration) -> None:
        known = self.decorations.get(decoration.name)
        if known is not None:
            ours, theirs = known.enter.function, decoration.enter.function
            _reject_duplicate("decorator", decoration.name, ours, theirs)
        self.decorations[decoration.name] = decoration

    def leaf(
        self,
        name: str,
        *,
        reads: tuple[str, ...] = (),
        writes: tuple[str, ...] = (),
        step: bool = False,
        effect: Effect | str | EffectFunction | None = None,
        request: RequestFunction | None = None,
        thread: bool = False,
    ) -> Callable[[F], F]:
        """Register the decorated function under a dotted name, for `:fn` to find.

        `effect` may be a function of blackboard, host and arguments, which decides for each call;
        `request` is one that tells what a call asks for.
        """

        def register(function: F) -> F:
            self.add_leaf(
                make_leaf(
                    name,
                    function,
                    reads=reads,
                    writes=writes,
                    step=step,
                    effect=effect,
                    request=request,
                    thread=thread,
                )
            )
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
        """Register the function as what comes before the child of `(decorator NAME CHILD)`."""

        def register(function: Callable[..., LeafResult]) -> Decoration:
            made = make_decoration(name, function, reads=reads, writes=writes, step=step)
            self.add_decoration(made)
            return made

        return register

    def find_leaf(self, name: str) -> Leaf | None:
        """What `:fn` and the names of actions and conditions mean."""
        return self.leaves.get(name)

    def find_leaf_node(self, name: str) -> Leaf | None:
        """The leaf that a head symbol means, when it is no node kind."""
        return self.leaves.get(name)

    def find_decoration(self, name: str) -> Decoration | None:
        return self.decorations.get(name)


def _reject_duplicate(noun: str, name: str, known: LeafFunction, new: LeafFunction) -> None:
    if not is_same_function(known, new):
        raise LoadError(
            f"{noun} '{name}' is registered twice: in {qualified_name(known)} and in {qualified_name(new)}.",
            hint="Give one of them another name.",
        )
