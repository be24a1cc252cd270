"""Functions that trees name: leaves, and the decorations around other nodes.

A function is looked at once, when it registers, so that nothing is looked up while a tree runs.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypedDict, TypeVar, Unpack, get_origin, get_type_hints

from dodona.core.errors import LoadError, did_you_mean
from dodona.core.ports.journal import Effect
from dodona.trees.runtime.blackboard import Blackboard
from dodona.trees.runtime.status import Status

Result = Status | bool | None
LeafFunction = Callable[..., Result | Awaitable[Result]]
# What a step is about to do, told from the blackboard, the host and the leaf's arguments.
EffectOf = Callable[[Blackboard, Any, Mapping[str, Any]], Effect | str]
RequestOf = Callable[[Blackboard, Any, Mapping[str, Any]], str]
F = TypeVar("F", bound=Callable[..., Any])

# Parameters that the runtime fills; no tree may write them.
GIVEN = ("step", "host")


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str
    required: bool
    type: type | None


@dataclass(frozen=True, slots=True, eq=False)
class Leaf:
    """A function that a tree calls by name.

    A pure leaf reads and writes the blackboard, and what of the host is rebuilt when pure leaves
    run again. A step may do anything; its outcome is journalled. An async function is always a
    step; so is one that blocks in a `thread` of its own.

    `effect` is the most that it may do: with `effect_of` each call decides. `request_of` tells
    what a call asks for.
    """

    name: str
    function: LeafFunction
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    step: bool = False
    effect: Effect = Effect.NONE
    effect_of: EffectOf | None = None
    request_of: RequestOf | None = None
    thread: bool = False
    is_async: bool = False
    parameters: Mapping[str, Parameter] = field(default_factory=dict[str, Parameter])
    open_parameters: bool = False
    wants_step: bool = False
    wants_host: bool = False

    @property
    def runs(self) -> bool:
        """Does it go on after the tick that starts it?"""
        return self.is_async or self.thread


@dataclass(slots=True, eq=False)
class Decoration:
    """What `(decorator NAME CHILD)` does: `enter` may refuse the child, `leave` overrule it."""

    name: str
    enter: Leaf
    on_leave: Callable[..., Result] | None = None
    leave_wants_host: bool = False

    def leave(self, function: F) -> F:
        """Use the function when the child has ended; it returns another status, or nothing."""
        self.leave_wants_host = "host" in _names(function)[2:]
        self.on_leave = function
        return function


def make_decoration(
    name: str,
    function: Callable[..., Result],
    *,
    reads: tuple[str, ...] = (),
    writes: tuple[str, ...] = (),
    step: bool = False,
) -> Decoration:
    """The function as what comes before a child. One that is a step is journalled like a leaf."""
    _check_function(who := f"decorator '{name}'", function, (reads, writes))
    if _is_async(function):
        raise LoadError(
            f"{who} is async, and its child cannot wait for it.",
            hint="Put an async leaf before the child, in a (sequence …).",
        )
    enter = make_leaf(name, function, reads=reads, writes=writes, step=step)
    needed = [p.name for p in enter.parameters.values() if p.required]
    if needed:
        raise LoadError(
            f"{who} needs the argument '{needed[0]}', which no tree can give.",
            hint="It takes the blackboard, and may take host and step.",
        )
    return Decoration(name, enter)


class Declared(TypedDict, total=False):
    """What the author of a leaf says about it. See `Registry.leaf`."""

    reads: tuple[str, ...]
    writes: tuple[str, ...]
    step: bool
    effect: Effect | str | EffectOf | None
    request: RequestOf | None
    thread: bool


def make_leaf(name: str, function: LeafFunction, **declared: Unpack[Declared]) -> Leaf:
    """The function as trees see it; what cannot work is refused."""
    reads, writes = declared.get("reads", ()), declared.get("writes", ())
    effect, request = declared.get("effect"), declared.get("request")
    thread, is_async = declared.get("thread", False), _is_async(function)
    _check_function(who := f"leaf '{name}'", function, (reads, writes))
    if is_async and thread:
        raise LoadError(f"{who} is async and cannot have a thread of its own.")
    most, effect_of = _effects(who, effect, runs=is_async or thread)
    parameters = list(inspect.signature(function).parameters.values())
    names = [p.name for p in parameters[1:]]
    says_step = declared.get("step", False) or effect is not None or request is not None
    return Leaf(
        name=name,
        function=function,
        reads=tuple(reads),
        writes=tuple(writes),
        step=says_step or is_async or thread or "step" in names,
        effect=most,
        effect_of=effect_of,
        request_of=request,
        thread=thread,
        is_async=is_async,
        parameters=_parameters(function),
        open_parameters=any(p.kind is p.VAR_KEYWORD for p in parameters),
        wants_step="step" in names,
        wants_host="host" in names,
    )


def read_effect(effect: Effect | str, who: str) -> Effect:
    """The effect of this name."""
    if isinstance(effect, Effect):
        return effect
    names = [known.value for known in Effect]
    if effect not in names:
        raise LoadError(
            f"{who} has no effect '{effect}'.",
            hint=did_you_mean(effect, names) or f"There are: {', '.join(names)}.",
        )
    return Effect(effect)


def same_function(one: Callable[..., Any], other: Callable[..., Any]) -> bool:
    # A module that is imported again registers its functions again: that is no clash.
    return (_name(one), _file(one)) == (_name(other), _file(other))


def home(function: Callable[..., Any]) -> str:
    return f"{function.__module__}.{_name(function)}"


_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_SIMPLE = (str, int, float, bool, list, dict)


def _check_function(who: str, function: LeafFunction, declared: tuple[object, ...]) -> None:
    for keys in declared:
        if isinstance(keys, str):
            raise LoadError(f"{who} gives its keys as a string.", hint=f'Write ("{keys}",).')
    first = next(iter(inspect.signature(function).parameters.values()), None)
    if first is None or first.kind not in _POSITIONAL:
        raise LoadError(f"{who} takes no blackboard.", hint=f"Write: def {_name(function)}(bb): …")


def _parameters(function: LeafFunction) -> dict[str, Parameter]:
    """What a tree may give the function by keyword."""
    hints = _hints(function)
    return {
        p.name: Parameter(p.name, p.default is p.empty, _simple(hints.get(p.name)))
        for p in list(inspect.signature(function).parameters.values())[1:]
        if p.kind in _NAMED and p.name not in GIVEN
    }


def _effects(
    who: str, effect: Effect | str | EffectOf | None, *, runs: bool
) -> tuple[Effect, EffectOf | None]:
    """The most that the leaf may do, and the function that decides for a call."""
    if effect is None:
        # What it does is unknown unless it says so, and unknown means: not twice.
        return (Effect.ONCE if runs else Effect.NONE), None
    if callable(effect):
        most, decides, said = Effect.ONCE, effect, "an effect"
    else:
        most, decides = read_effect(effect, who), None
        said = f"the effect '{most.value}'"
    if most is not Effect.NONE and not runs:
        raise LoadError(
            f"{who} is sync and has {said}: it cannot wait until the journal knows that it starts.",
            hint="Make it async, or give it thread=True.",
        )
    return most, decides


def _is_async(function: LeafFunction) -> bool:
    called = getattr(function, "__call__", None)  # noqa: B004 - its kind is what we want
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)


def _names(function: Callable[..., Any]) -> list[str]:
    return list(inspect.signature(function).parameters)


def _hints(function: LeafFunction) -> Mapping[str, Any]:
    try:
        return get_type_hints(function)
    except (NameError, TypeError):
        return {}  # a name known to type checkers only: then literals are not checked


def _simple(hint: Any) -> type | None:
    kind = get_origin(hint) or hint
    return kind if kind in _SIMPLE else None


def _file(function: Callable[..., Any]) -> tuple[str, int]:
    code = getattr(function, "__code__", None)
    return (code.co_filename, code.co_firstlineno) if code else (function.__module__, 0)


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", repr(function))
