"""What trees may name: node kinds, leaves and decorations.

Built-in kinds enter by the same door as a plugin's: `Registry.add_kind`.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast, get_origin, get_type_hints

from dodona.core.errors import LoadError
from dodona.core.near import did_you_mean
from dodona.core.ports import Effect
from dodona.trees.blackboard import Blackboard
from dodona.trees.node import NodeKind
from dodona.trees.status import Status

Result = Status | bool | None
LeafFunction = Callable[..., Result | Awaitable[Result]]
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str
    required: bool
    type: type | None


@dataclass(frozen=True, slots=True, eq=False)
class Leaf:
    """A function that a tree calls by name.

    A pure leaf reads and writes the blackboard and nothing else. A step may do anything; its
    outcome is journalled. An async function is always a step; so is one that blocks in a
    `thread` of its own.
    """

    name: str
    function: LeafFunction
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    step: bool = False
    effect: Effect = Effect.NONE
    thread: bool = False
    is_async: bool = False
    parameters: Mapping[str, Parameter] = field(default_factory=dict[str, Parameter])
    open_parameters: bool = False
    wants_step: bool = False

    @property
    def runs(self) -> bool:
        """Does it go on after the tick that starts it?"""
        return self.is_async or self.thread


@dataclass(slots=True, eq=False)
class Decoration:
    """What `(decorator NAME CHILD)` does: `enter` may refuse the child, `leave` overrule it."""

    name: str
    enter: Callable[[Blackboard], Result]
    on_leave: Callable[[Blackboard, Status], Result] | None = None

    def leave(self, function: F) -> F:
        """Use the function when the child has ended; it returns another status, or nothing."""
        self.on_leave = cast(Callable[[Blackboard, Status], Result], function)
        return function


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
        if known is not None and not _same_function(known.function, leaf.function):
            raise LoadError(
                f"leaf '{leaf.name}' is registered twice: in {_home(known.function)} and in "
                f"{_home(leaf.function)}.",
                hint="Give one of them another name.",
            )
        self.leaves[leaf.name] = leaf

    def add_decoration(self, decoration: Decoration) -> None:
        known = self.decorations.get(decoration.name)
        if known is not None and not _same_function(known.enter, decoration.enter):
            raise LoadError(
                f"decorator '{decoration.name}' is registered twice: in {_home(known.enter)} and "
                f"in {_home(decoration.enter)}.",
                hint="Give one of them another name.",
            )
        self.decorations[decoration.name] = decoration

    def leaf(
        self,
        name: str,
        *,
        reads: tuple[str, ...] = (),
        writes: tuple[str, ...] = (),
        step: bool = False,
        effect: str | None = None,
        thread: bool = False,
    ) -> Callable[[F], F]:
        """Register the decorated function under a dotted name, for `:fn` to find."""

        def register(function: F) -> F:
            self.add_leaf(
                make_leaf(
                    name,
                    function,
                    reads=reads,
                    writes=writes,
                    step=step,
                    effect=effect,
                    thread=thread,
                )
            )
            return function

        return register

    def decorator(self, name: str) -> Callable[[Callable[[Blackboard], Result]], Decoration]:
        """Register the function as what comes before the child of `(decorator NAME CHILD)`."""

        def register(function: Callable[[Blackboard], Result]) -> Decoration:
            decoration = Decoration(name, function)
            self.add_decoration(decoration)
            return decoration

        return register

    def find_leaf(self, name: str) -> Leaf | None:
        """What `:fn` and the names of actions and conditions mean."""
        return self.leaves.get(name)

    def find_node(self, name: str) -> Leaf | None:
        """The leaf that a head symbol means, when it is no node kind."""
        return self.leaves.get(name)

    def find_decoration(self, name: str) -> Decoration | None:
        return self.decorations.get(name)


def make_leaf(
    name: str,
    function: LeafFunction,
    *,
    reads: tuple[str, ...] = (),
    writes: tuple[str, ...] = (),
    step: bool = False,
    effect: str | None = None,
    thread: bool = False,
) -> Leaf:
    """Look at the function once, so that nothing is looked up while a tree runs."""
    for keys in (reads, writes):
        if isinstance(keys, str):
            raise LoadError(
                f"leaf '{name}' gives its keys as a string.", hint=f'Write ("{keys}",).'
            )
    is_async = _is_async(function)
    if is_async and thread:
        raise LoadError(f"leaf '{name}' is async and cannot have a thread of its own.")
    effects = [known.value for known in Effect]
    if effect is not None and effect not in effects:
        raise LoadError(
            f"leaf '{name}' has no effect '{effect}'.",
            hint=did_you_mean(effect, effects) or f"There are: {', '.join(effects)}.",
        )
    if effect not in (None, Effect.NONE.value) and not (is_async or thread):
        raise LoadError(
            f"leaf '{name}' is sync and has the effect '{effect}': it cannot wait until the "
            "journal knows that it starts.",
            hint="Make it async, or give it thread=True.",
        )
    parameters = list(inspect.signature(function).parameters.values())
    wants_step = any(p.name == "step" for p in parameters[1:])
    is_step = step or is_async or thread or wants_step or effect is not None
    if not parameters or parameters[0].kind not in _POSITIONAL:
        raise LoadError(
            f"leaf '{name}' takes no blackboard.", hint=f"Write: def {_name(function)}(bb): …"
        )
    hints = _hints(function)
    return Leaf(
        name=name,
        function=function,
        reads=tuple(reads),
        writes=tuple(writes),
        step=is_step,
        # What it does is unknown unless it says so, and unknown means: not twice.
        effect=Effect(effect) if effect else (Effect.ONCE if is_async or thread else Effect.NONE),
        thread=thread,
        is_async=is_async,
        parameters={
            p.name: Parameter(p.name, p.default is p.empty, _simple(hints.get(p.name)))
            for p in parameters[1:]
            if p.kind in _NAMED and p.name != "step"
        },
        open_parameters=any(p.kind is p.VAR_KEYWORD for p in parameters),
        wants_step=wants_step,
    )


_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_SIMPLE = (str, int, float, bool, list, dict)


def _is_async(function: LeafFunction) -> bool:
    called = getattr(function, "__call__", None)  # noqa: B004 - its kind is what we want
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)


def _hints(function: LeafFunction) -> Mapping[str, Any]:
    try:
        return get_type_hints(function)
    except (NameError, TypeError):
        return {}  # a name known to type checkers only: then literals are not checked


def _simple(hint: Any) -> type | None:
    kind = get_origin(hint) or hint
    return kind if kind in _SIMPLE else None


def _same_function(one: Callable[..., Any], other: Callable[..., Any]) -> bool:
    # A module that is imported again registers its functions again: that is no clash.
    return (_name(one), _file(one)) == (_name(other), _file(other))


def _file(function: Callable[..., Any]) -> tuple[str, int]:
    code = getattr(function, "__code__", None)
    return (code.co_filename, code.co_firstlineno) if code else (function.__module__, 0)


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", repr(function))


def _home(function: Callable[..., Any]) -> str:
    return f"{function.__module__}.{_name(function)}"
