"""Leaves that do as they are told: for tests of trees.

:success  :failure                              what it says
{:status :failure :set {:key VALUE}}            what it writes; VALUE may be an expression
{:raise "no such note"}                         it raises
{:after 5}                                      it takes so many seconds
[:failure :failure :success]                    one after the other; the last one stays
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from dodona.core.errors import LoadError, ToolFailed
from dodona.lisp import Form, Keyword, Literal, Map, Vector
from dodona.trees.language.expressions import Expression, compile_expression
from dodona.trees.runtime.blackboard import Blackboard
from dodona.trees.runtime.leaves import Decoration, Leaf
from dodona.trees.runtime.registry import Registry
from dodona.trees.runtime.status import Status

_WORDS = ("status", "set", "raise", "after")


@dataclass(frozen=True, slots=True)
class Cue:
    """What a scripted leaf does in one call."""

    status: Status = Status.SUCCESS
    writes: tuple[tuple[str, Expression], ...] = ()
    error: str | None = None
    after: float = 0.0

    def play(self, board: Blackboard) -> Status:
        for key, value in [(key, value.evaluate(board)) for key, value in self.writes]:
            board[key] = value
        if self.error is not None:
            raise ToolFailed(self.error)
        return self.status


class Script:
    """The cues of one leaf, and who is told of its calls."""

    def __init__(self, name: str, cues: tuple[Cue, ...], called: Callable[[str], None]) -> None:
        self.name = name
        self._cues = cues
        self._called = called
        self._next = 0

    def leaf(self) -> Leaf:
        waits = any(cue.after for cue in self._cues)
        return Leaf(
            self.name,
            self._play_later if waits else self._play,
            step=waits,
            is_async=waits,
            open_parameters=True,
        )

    def decoration(self) -> Decoration:
        return Decoration(self.name, Leaf(self.name, self._play))

    def _cue(self) -> Cue:
        self._called(self.name)
        cue = self._cues[min(self._next, len(self._cues) - 1)]
        self._next += 1
        return cue

    def _play(self, board: Blackboard, **arguments: Any) -> Status:
        del arguments
        return self._cue().play(board)

    async def _play_later(self, board: Blackboard, **arguments: Any) -> Status:
        del arguments
        cue = self._cue()
        await asyncio.sleep(cue.after)
        return cue.play(board)


class ScriptedRegistry(Registry):
    """Scripts first, then what is registered; then, if there is one, the default script."""

    def __init__(
        self, base: Registry, scripts: Mapping[str, tuple[Cue, ...]], called: Callable[[str], None]
    ) -> None:
        super().__init__(tuple(base.kinds.values()))
        self.leaves.update(base.leaves)
        self.decorations.update(base.decorations)
        self._default = scripts.get("default")
        self._called = called
        self._scripts = {n: Script(n, cues, called) for n, cues in scripts.items()}

    def find_leaf(self, name: str) -> Leaf | None:
        script = self._script(name, name in self.leaves)
        return script.leaf() if script else self._counted(name)

    def _counted(self, name: str) -> Leaf | None:
        """The registered leaf, whose calls are told as well."""
        leaf = self.leaves.get(name)
        if leaf is None:
            return None

        def told(board: Blackboard, **arguments: Any) -> Any:
            self._called(name)
            return leaf.function(board, **arguments)

        return replace(leaf, function=told)

    def find_node(self, name: str) -> Leaf | None:
        # Not the default: a misspelt node would become a leaf that nobody meant.
        if name in self._scripts:
            return self._scripts[name].leaf()
        return self._counted(name)

    def find_decoration(self, name: str) -> Decoration | None:
        script = self._script(name, name in self.decorations)
        if script is not None:
            return script.decoration()
        found = self.decorations.get(name)
        if found is None:
            return None

        def told(board: Blackboard, **given: Any) -> Any:
            self._called(name)
            return found.enter.function(board, **given)

        return replace(found, enter=replace(found.enter, function=told))

    def _script(self, name: str, registered: bool) -> Script | None:  # noqa: FBT001
        if name not in self._scripts and self._default is not None and not registered:
            self._scripts[name] = Script(name, self._default, self._called)
        return self._scripts.get(name)


def read_scripts(form: Form) -> dict[str, tuple[Cue, ...]]:
    """The `:leaves` of a test."""
    if not isinstance(form, Map):
        raise LoadError("':leaves' takes a map of leaf names.", where=form.span.where())
    return {_name(key): _cues(value) for key, value in form.pairs}


def _name(form: Form) -> str:
    if isinstance(form, Literal) and isinstance(form.value, str):
        return form.value
    if isinstance(form, Keyword) and form.name == "default":
        return form.name
    raise LoadError(
        "a leaf is named by a string.",
        where=form.span.where(),
        hint='Write {"dotted.name" :success}; the keyword :default stands for all others.',
    )


def _cues(form: Form) -> tuple[Cue, ...]:
    if isinstance(form, Vector):
        if not form.items:
            raise LoadError("a script needs an outcome.", where=form.span.where())
        return tuple(_cue(item) for item in form.items)
    return (_cue(form),)


def _cue(form: Form) -> Cue:
    if isinstance(form, Keyword):
        return Cue(_status(form))
    if not isinstance(form, Map):
        raise LoadError(
            "an outcome is :success, :failure or a map.",
            where=form.span.where(),
            hint="The map takes :status :set :raise :after.",
        )
    parts = {key.name: value for key, value in form.pairs if isinstance(key, Keyword)}
    for key, _ in form.pairs:
        if not isinstance(key, Keyword) or key.name not in _WORDS:
            raise LoadError("an outcome takes :status :set :raise :after.", where=key.span.where())
    return Cue(
        _status(parts["status"]) if "status" in parts else Status.SUCCESS,
        _writes(parts["set"]) if "set" in parts else (),
        str(_constant(parts["raise"], str)) if "raise" in parts else None,
        float(_constant(parts["after"], (int, float))) if "after" in parts else 0.0,
    )


def _status(form: Form) -> Status:
    if isinstance(form, Keyword) and form.name in ("success", "failure"):
        return Status(form.name)
    raise LoadError("a leaf ends in :success or :failure.", where=form.span.where())


def _writes(form: Form) -> tuple[tuple[str, Expression], ...]:
    if not isinstance(form, Map):
        raise LoadError("':set' takes a map of keys.", where=form.span.where())
    return tuple((_key(key), compile_expression(value)) for key, value in form.pairs)


def _key(form: Form) -> str:
    if isinstance(form, Keyword):
        return form.name
    raise LoadError(
        "a blackboard key is a keyword.", where=form.span.where(), hint="Write {:key VALUE}."
    )


def _constant(form: Form, kinds: type | tuple[type, ...]) -> Any:
    if isinstance(form, Literal) and isinstance(form.value, kinds):
        return form.value
    raise LoadError("this is of the wrong type here.", where=form.span.where())
