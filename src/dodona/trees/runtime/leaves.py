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

LeafResult = Status | bool | None
LeafFunction = Callable[..., LeafResult | Awaitable[LeafResult]]
# What a step is about to do, told from the blackboard, the host and the leaf's arguments.
EffectFunction = Callable[[Blackboard, Any, Mapping[str, Any]], Effect | str]
RequestFunction = Callable[[Blackboard, Any, Mapping[str, Any]], str]
F = TypeVar("F", bound=Callable[..., Any])

# Parameters that the runtime fills; no tree may write them.
INJECTED_PARAMETERS = ("step", "host")


@dataclass(frozen=True, slots=True)
class LeafParameter:
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
    effect_of: EffectFunction | None = None
    request_of: RequestFunction | None = None
    thread: bool = False
    is_async: bool = False
    parameters: Mapping[str, LeafParameter] = field(default_factory=dict[str, LeafParameter])
    allows_extra_parameters: bool = False
    wants_step: bool = False
    wants_host: bool = False

    @property
    def is_background(self) -> bool:
        """Does it go on after the tick that starts it?"""
        return self.is_async or self.thread


@dataclass(slots=True, eq=False)
class Decoration:
    """What `(decorator NAME CHILD)` does: `enter` may refuse the child, `leave` overrule it."""

    name: str
    enter: Leaf
    on_leave: Callable[..., LeafResult] | None = None
    leave_wants_host: bool = False

    def leave(self, function: F) -> F:
        """Use the function when the child has ended; it returns another status, or nothing."""
        self.leave_wants_host = "host" in _parameter_names(function)[2:]
        self.on_leave = function
        return function


def make_decoration(
    name: str,
    function: Callable[..., LeafResult],
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


class LeafOptions(TypedDict, total=False):
    """What the author of a leaf says about it. See `Registry.leaf`."""

    reads: tuple[str, ...]
    writes: tuple[str, ...]
    step: bool
    effect: Effect | str | EffectFunction | None
    request: RequestFunction | None
    thread: bool


def make_leaf(name: str, function: LeafFunction, **declared: Unpack[LeafOptions]) -> Leaf:
    """The function as trees see it; what cannot work is refused."""
    reads, writes = declared.get("reads", ()), declared.get("writes", ())
    effect, request = declared.get("effect"), declared.get("request")
    thread, is_async = declared.get("thread", False), _is_async(function)
    _check_function(who := f"leaf '{name}'", function, (reads, writes))
    if is_async and thread:
        raise LoadError(f"{who} is async and cannot have a thread of its own.")
    most, effect_of = _resolve_effect(who, effect, is_background=is_async or thread)
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
        parameters=_keyword_parameters(function),
        allows_extra_parameters=any(p.kind is p.VAR_KEYWORD for p in parameters),
        wants_step="step" in names,
        wants_host="host" in names,
    )


def parse_effect(effect: Effect | str, label: str) -> Effect:
    """The effect of this name."""
    if isinstance(effect, Effect):
        return effect
    names = [known.value for known in Effect]
    if effect not in names:
        raise LoadError(
            f"{label} has no effect '{effect}'.",
            hint=did_you_mean(effect, names) or f"There are: {', '.join(names)}.",
        )
    return Effect(effect)


def is_same_function(one: Callable[..., Any], other: Callable[..., Any]) -> bool:
    # A module that is imported again registers its functions again: that is no clash.
    return (_qualname(one), _source_position(one)) == (_qualname(other), _source_position(other))


def qualified_name(function: Callable[..., Any]) -> str:
    return f"{function.__module__}.{_qualname(function)}"


_POSITIONAL_KINDS = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_KEYWORD_KINDS = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_SIMPLE_TYPES = (str, int, float, bool, list, dict)


def _check_function(label: str, function: LeafFunction, key_lists: tuple[object, ...]) -> None:
    for keys in key_lists:
        if isinstance(keys, str):
            raise LoadError(f"{label} gives its keys as a string.", hint=f'Write ("{keys}",).')
    first = next(iter(inspect.signature(function).parameters.values()), None)
    if first is None or first.kind not in _POSITIONAL_KINDS:
        raise LoadError(
            f"{label} takes no blackboard.", hint=f"Write: def {_qualname(function)}(bb): …"
        )


def _keyword_parameters(function: LeafFunction) -> dict[str, LeafParameter]:
    """What a tree may give the function by keyword."""
    hints = _type_hints(function)
    return {
        p.name: LeafParameter(p.name, p.default is p.empty, _simple_type(hints.get(p.name)))
        for p in list(inspect.signature(function).parameters.values())[1:]
        if p.kind in _KEYWORD_KINDS and p.name not in INJECTED_PARAMETERS
    }


def _resolve_effect(
    label: str, effect: Effect | str | EffectFunction | None, *, is_background: bool
) -> tuple[Effect, EffectFunction | None]:
    """The most that the leaf may do, and the function that decides for a call."""
    if effect is None:
        # What it does is unknown unless it says so, and unknown means: not twice.
        return (Effect.ONCE if is_background else Effect.NONE), None
    if callable(effect):
        most, decides, said = Effect.ONCE, effect, "an effect"
    else:
        most, decides = parse_effect(effect, label), None
        said = f"the effect '{most.value}'"
    if most is not Effect.NONE and not is_background:
        raise LoadError(
            f"{label} is sync and has {said}: it cannot wait until the journal knows that it starts.",
            hint="Make it async, or give it thread=True.",
        )
    return most, decides


def _is_async(function: LeafFunction) -> bool:
    called = getattr(function, "__call__", None)  # noqa: B004 - its kind is what we want
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)


def _parameter_names(function: Callable[..., Any]) -> list[str]:
    return list(inspect.signature(function).parameters)


def _type_hints(function: LeafFunction) -> Mapping[str, Any]:
    try:
        return get_type_hints(function)
    except (NameError, TypeError):
        return {}  # a name known to type checkers only: then literals are not checked


def _simple_type(hint: Any) -> type | None:
    kind = get_origin(hint) or hint
    return kind if kind in _SIMPLE_TYPES else None


def _source_position(function: Callable[..., Any]) -> tuple[str, int]:
    code = getattr(function, "__code__", None)
    return (code.co_filename, code.co_firstlineno) if code else (function.__module__, 0)


def _qualname(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", repr(function))
