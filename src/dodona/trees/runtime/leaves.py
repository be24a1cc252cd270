"""Functions that trees call by name: leaves, and the decorations around other nodes.

A function is inspected once, at registration, so that a running tree needs no lookups.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypedDict, TypeVar, Unpack, get_origin, get_type_hints

from dodona.core.errors import LoadError, did_you_mean
from dodona.core.extensions import Extension, attach
from dodona.core.ports.journal import Effect
from dodona.trees.runtime.blackboard import Blackboard
from dodona.trees.runtime.status import Status

LeafResult = Status | bool | None
LeafFunction = Callable[..., LeafResult | Awaitable[LeafResult]]
# Derive the effect or the request of a step from the blackboard, the host and the arguments.
EffectFunction = Callable[[Blackboard, Any, Mapping[str, Any]], Effect | str]
RequestFunction = Callable[[Blackboard, Any, Mapping[str, Any]], str]
F = TypeVar("F", bound=Callable[..., Any])

# Parameters that the runtime injects; a tree cannot set them.
INJECTED_PARAMETERS = ("step", "host")


@dataclass(frozen=True, slots=True)
class LeafParameter:
    """A keyword parameter that a tree can set."""

    name: str
    required: bool
    type: type | None


@dataclass(frozen=True, slots=True, eq=False)
class Leaf(Extension):
    """A function that a tree calls by name.

    A pure leaf reads and writes only the blackboard, and host state that is rebuilt when pure
    leaves run again. A step may do anything; its outcome is journalled. An async function and a
    blocking one that runs in a `thread` are always steps.

    `effect` is the strongest effect of the leaf; with `effect_of` it is decided per call.
    `request_of` describes the request of a call.
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
        """Whether the leaf keeps running after the tick that starts it."""
        return self.is_async or self.thread


@dataclass(slots=True, eq=False)
class Decoration(Extension):
    """The functions of `(decorator NAME CHILD)`.

    `enter` can prevent the child from starting; `on_leave` can override its status.
    """

    name: str
    enter: Leaf
    on_leave: Callable[..., LeafResult] | None = None
    leave_wants_host: bool = False

    def leave(self, function: F) -> F:
        """Register the function to call when the child ends; it may return another status."""
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
    """Build a decoration whose `enter` is the function. A step is journalled like a leaf."""
    _check_function(label := f"decorator '{name}'", function, (reads, writes))
    if _is_async(function):
        raise LoadError(
            f"{label} is async, but its child cannot wait for it.",
            hint="Put an async leaf before the child, in a (sequence …).",
        )
    enter = make_leaf(name, function, reads=reads, writes=writes, step=step)
    required = [p.name for p in enter.parameters.values() if p.required]
    if required:
        raise LoadError(
            f"{label} needs the argument '{required[0]}', which a tree cannot pass.",
            hint="It takes the blackboard, and may take host and step.",
        )
    return Decoration(name, enter)


class LeafOptions(TypedDict, total=False):
    """The declared properties of a leaf.

    `effect` may be a function of blackboard, host and arguments that decides per call. `request` is
    a function of the same arguments that describes the request of a call.
    """

    reads: tuple[str, ...]
    writes: tuple[str, ...]
    step: bool
    effect: Effect | str | EffectFunction | None
    request: RequestFunction | None
    thread: bool


def make_leaf(name: str, function: LeafFunction, **declared: Unpack[LeafOptions]) -> Leaf:
    """Build a leaf from a function. Raise LoadError for an invalid combination of options."""
    reads, writes = declared.get("reads", ()), declared.get("writes", ())
    effect, request = declared.get("effect"), declared.get("request")
    thread, is_async = declared.get("thread", False), _is_async(function)
    _check_function(label := f"leaf '{name}'", function, (reads, writes))
    if is_async and thread:
        raise LoadError(f"{label} is async and cannot run in a thread.")
    strongest_effect, effect_of = _resolve_effect(label, effect, is_background=is_async or thread)
    parameters = list(inspect.signature(function).parameters.values())
    names = [p.name for p in parameters[1:]]
    is_step = declared.get("step", False) or effect is not None or request is not None
    return Leaf(
        name=name,
        function=function,
        reads=tuple(reads),
        writes=tuple(writes),
        step=is_step or is_async or thread or "step" in names,
        effect=strongest_effect,
        effect_of=effect_of,
        request_of=request,
        thread=thread,
        is_async=is_async,
        parameters=_keyword_parameters(function),
        allows_extra_parameters=any(p.kind is p.VAR_KEYWORD for p in parameters),
        wants_step="step" in names,
        wants_host="host" in names,
    )


def leaf(name: str, **declared: Unpack[LeafOptions]) -> Callable[[F], F]:
    """Declare the decorated function as a leaf, for use with `:fn`. See `LeafOptions`.

    Nothing is registered: pass the function to `load`, or have an app load its module.
    """

    def declare(function: F) -> F:
        attach(function, make_leaf(name, function, **declared))
        return function

    return declare


def decorator(
    name: str,
    *,
    reads: tuple[str, ...] = (),
    writes: tuple[str, ...] = (),
    step: bool = False,
) -> Callable[[Callable[..., LeafResult]], Decoration]:
    """Declare the function to call before the child of `(decorator NAME CHILD)`."""

    def declare(function: Callable[..., LeafResult]) -> Decoration:
        return make_decoration(name, function, reads=reads, writes=writes, step=step)

    return declare


def parse_effect(effect: Effect | str, label: str) -> Effect:
    """Return the effect with this name. `label` names the leaf in the error."""
    if isinstance(effect, Effect):
        return effect
    names = [member.value for member in Effect]
    if effect not in names:
        raise LoadError(
            f"{label} has the unknown effect '{effect}'.",
            hint=did_you_mean(effect, names) or f"Available: {', '.join(names)}.",
        )
    return Effect(effect)


def is_same_function(one: Callable[..., Any], other: Callable[..., Any]) -> bool:
    """Return whether both are the same function, possibly imported twice.

    A module that is imported again registers its functions again, which is not a conflict.
    """
    return (_qualname(one), _source_position(one)) == (_qualname(other), _source_position(other))


def qualified_name(function: Callable[..., Any]) -> str:
    """Return module and qualified name of a function."""
    return f"{function.__module__}.{_qualname(function)}"


_POSITIONAL_KINDS = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_KEYWORD_KINDS = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_SIMPLE_TYPES = (str, int, float, bool, list, dict)


def _check_function(label: str, function: LeafFunction, key_lists: tuple[object, ...]) -> None:
    for keys in key_lists:
        if isinstance(keys, str):
            raise LoadError(f"{label} declares its keys as a string.", hint=f'Write ("{keys}",).')
    first = next(iter(inspect.signature(function).parameters.values()), None)
    if first is None or first.kind not in _POSITIONAL_KINDS:
        raise LoadError(
            f"{label} does not take a blackboard.", hint=f"Write: def {_qualname(function)}(bb): …"
        )


def _keyword_parameters(function: LeafFunction) -> dict[str, LeafParameter]:
    """Return the parameters that a tree can pass by keyword."""
    hints = _type_hints(function)
    return {
        p.name: LeafParameter(p.name, p.default is p.empty, _simple_type(hints.get(p.name)))
        for p in list(inspect.signature(function).parameters.values())[1:]
        if p.kind in _KEYWORD_KINDS and p.name not in INJECTED_PARAMETERS
    }


def _resolve_effect(
    label: str, effect: Effect | str | EffectFunction | None, *, is_background: bool
) -> tuple[Effect, EffectFunction | None]:
    """Return the strongest effect of the leaf, and the function that decides it per call."""
    if effect is None:
        # An undeclared effect is unknown, so the step must not run twice.
        return (Effect.ONCE if is_background else Effect.NONE), None
    if callable(effect):
        strongest, effect_of, description = Effect.ONCE, effect, "an effect"
    else:
        strongest, effect_of = parse_effect(effect, label), None
        description = f"the effect '{strongest.value}'"
    if strongest is not Effect.NONE and not is_background:
        raise LoadError(
            f"{label} is sync and has {description}: it cannot wait until the journal has "
            "recorded its start.",
            hint="Make it async, or set thread=True.",
        )
    return strongest, effect_of


def _is_async(function: LeafFunction) -> bool:
    method = getattr(function, "__call__", None)  # noqa: B004 - the method may be async
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(method)


def _parameter_names(function: Callable[..., Any]) -> list[str]:
    return list(inspect.signature(function).parameters)


def _type_hints(function: LeafFunction) -> Mapping[str, Any]:
    try:
        return get_type_hints(function)
    except (NameError, TypeError):
        return {}  # a name that only type checkers can resolve: literals are not checked


def _simple_type(hint: Any) -> type | None:
    kind = get_origin(hint) or hint
    return kind if kind in _SIMPLE_TYPES else None


def _source_position(function: Callable[..., Any]) -> tuple[str, int]:
    code = getattr(function, "__code__", None)
    return (code.co_filename, code.co_firstlineno) if code else (function.__module__, 0)


def _qualname(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", repr(function))
