"""Leaves with scripted results, for tests of trees.

:success  :failure                              the status
{:status :failure :set {:key VALUE}}            writes keys; VALUE may be an expression
{:raise "no such note"}                         raises an error
{:after 5}                                      takes this many seconds
[:failure :failure :success]                    one per call; the last one repeats
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from dodona.core.errors import ToolFailed
from dodona.lisp import Form, Keyword, Literal, Map, Vector
from dodona.trees.language.expressions import Expression, compile_expression, load_error
from dodona.trees.runtime.blackboard import Blackboard
from dodona.trees.runtime.leaves import Decoration, Leaf
from dodona.trees.runtime.registry import Registry
from dodona.trees.runtime.status import Status

_RESULT_KEYS = ("status", "set", "raise", "after")


@dataclass(frozen=True, slots=True)
class ScriptedResult:
    """The result of one call of a scripted leaf."""

    status: Status = Status.SUCCESS
    writes: tuple[tuple[str, Expression], ...] = ()
    error: str | None = None
    delay_seconds: float = 0.0

    def apply(self, board: Blackboard) -> Status:
        for key, value in [(key, value.evaluate(board)) for key, value in self.writes]:
            board[key] = value
        if self.error is not None:
            raise ToolFailed(self.error)
        return self.status


class LeafScript:
    """The scripted results of one leaf; `on_call` is called with its name on every call."""

    def __init__(
        self, name: str, results: tuple[ScriptedResult, ...], on_call: Callable[[str], None]
    ) -> None:
        self.name = name
        self._results = results
        self._on_call = on_call
        self._next_index = 0

    def build_leaf(self) -> Leaf:
        waits = any(result.delay_seconds for result in self._results)
        return Leaf(
            self.name,
            self._apply_next_delayed if waits else self._apply_next,
            step=waits,
            is_async=waits,
            allows_extra_parameters=True,
        )

    def build_decoration(self) -> Decoration:
        return Decoration(self.name, Leaf(self.name, self._apply_next))

    def _next_result(self) -> ScriptedResult:
        self._on_call(self.name)
        result = self._results[min(self._next_index, len(self._results) - 1)]
        self._next_index += 1
        return result

    def _apply_next(self, board: Blackboard, **arguments: Any) -> Status:
        del arguments
        return self._next_result().apply(board)

    async def _apply_next_delayed(self, board: Blackboard, **arguments: Any) -> Status:
        del arguments
        result = self._next_result()
        await asyncio.sleep(result.delay_seconds)
        return result.apply(board)


class ScriptedRegistry(Registry):
    """Looks up scripts first, then registered leaves, then the default script if there is one."""

    def __init__(
        self,
        base: Registry,
        scripts: Mapping[str, tuple[ScriptedResult, ...]],
        on_call: Callable[[str], None],
    ) -> None:
        super().__init__()
        self.kinds, self.leaves, self.decorations = base.kinds, base.leaves, base.decorations
        self._default_results = scripts.get("default")
        self._on_call = on_call
        self._scripts = {n: LeafScript(n, results, on_call) for n, results in scripts.items()}

    def find_leaf(self, name: str) -> Leaf | None:
        script = self._find_script(name, name in self.leaves)
        return script.build_leaf() if script else self._leaf_with_call_log(name)

    def _leaf_with_call_log(self, name: str) -> Leaf | None:
        """Return the registered leaf, wrapped so that its calls are reported too."""
        leaf = self.leaves.get(name)
        return self._log_calls(leaf) if leaf else None

    def _log_calls(self, leaf: Leaf) -> Leaf:
        def logged(board: Blackboard, **arguments: Any) -> Any:
            self._on_call(leaf.name)
            return leaf.function(board, **arguments)

        return replace(leaf, function=logged)

    def find_leaf_node(self, name: str) -> Leaf | None:
        # Without the default script: it would turn a misspelt node into a leaf.
        if name in self._scripts:
            return self._scripts[name].build_leaf()
        return self._leaf_with_call_log(name)

    def find_decoration(self, name: str) -> Decoration | None:
        script = self._find_script(name, name in self.decorations)
        if script is not None:
            return script.build_decoration()
        decoration = self.decorations.get(name)
        return replace(decoration, enter=self._log_calls(decoration.enter)) if decoration else None

    def _find_script(self, name: str, registered: bool) -> LeafScript | None:  # noqa: FBT001
        if name not in self._scripts and self._default_results is not None and not registered:
            self._scripts[name] = LeafScript(name, self._default_results, self._on_call)
        return self._scripts.get(name)


def parse_scripts(form: Form) -> dict[str, tuple[ScriptedResult, ...]]:
    """Parse the `:leaves` of a test."""
    if not isinstance(form, Map):
        raise load_error(form, "':leaves' takes a map of leaf names.")
    return {_parse_leaf_name(key): _parse_results(value) for key, value in form.pairs}


def _parse_leaf_name(form: Form) -> str:
    if isinstance(form, Literal) and isinstance(form.value, str):
        return form.value
    if isinstance(form, Keyword) and form.name == "default":
        return form.name
    raise load_error(
        form,
        "a leaf is named by a string.",
        'Write {"dotted.name" :success}; the keyword :default applies to all other leaves.',
    )


def _parse_results(form: Form) -> tuple[ScriptedResult, ...]:
    if isinstance(form, Vector):
        if not form.items:
            raise load_error(form, "a script needs an outcome.")
        return tuple(_parse_result(item) for item in form.items)
    return (_parse_result(form),)


def _parse_result(form: Form) -> ScriptedResult:
    if isinstance(form, Keyword):
        return ScriptedResult(_parse_status(form))
    if not isinstance(form, Map):
        raise load_error(
            form,
            "an outcome is :success, :failure or a map.",
            "The map takes :status :set :raise :after.",
        )
    parts = {key.name: value for key, value in form.pairs if isinstance(key, Keyword)}
    for key, _ in form.pairs:
        if not isinstance(key, Keyword) or key.name not in _RESULT_KEYS:
            raise load_error(key, "an outcome takes :status :set :raise :after.")
    return ScriptedResult(
        _parse_status(parts["status"]) if "status" in parts else Status.SUCCESS,
        _parse_writes(parts["set"]) if "set" in parts else (),
        str(_parse_constant(parts["raise"], str)) if "raise" in parts else None,
        float(_parse_constant(parts["after"], (int, float))) if "after" in parts else 0.0,
    )


def _parse_status(form: Form) -> Status:
    if isinstance(form, Keyword) and form.name in ("success", "failure"):
        return Status(form.name)
    raise load_error(form, "a leaf ends in :success or :failure.")


def _parse_writes(form: Form) -> tuple[tuple[str, Expression], ...]:
    if not isinstance(form, Map):
        raise load_error(form, "':set' takes a map of keys.")
    return tuple((_parse_key(key), compile_expression(value)) for key, value in form.pairs)


def _parse_key(form: Form) -> str:
    if isinstance(form, Keyword):
        return form.name
    raise load_error(form, "a blackboard key is a keyword.", "Write {:key VALUE}.")


def _parse_constant(form: Form, kinds: type | tuple[type, ...]) -> Any:
    if isinstance(form, Literal) and isinstance(form.value, kinds):
        return form.value
    raise load_error(form, "this value has the wrong type.")
