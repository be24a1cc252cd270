"""Leaves: functions that a tree calls, under `action`, `condition`, or their own name.

| the function                      | status                                        |
|-----------------------------------|-----------------------------------------------|
| returns nothing, true or SUCCESS  | SUCCESS                                       |
| returns false or FAILURE          | FAILURE                                       |
| returns RUNNING (sync only)       | RUNNING, called again at the next tick        |
| raises                            | FAILURE; the error is in `_error` and the trace |
| is async, or has a thread         | RUNNING until it has ended, then as above     |
| is cancelled from outside         | FAILURE                                       |
"""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Callable, Mapping
from typing import Any

from dodona.trees.language.expressions import Expression
from dodona.trees.language.node import Node
from dodona.trees.runtime.blackboard import Blackboard
from dodona.trees.runtime.frame import Frame, TickFunction
from dodona.trees.runtime.leaves import Leaf
from dodona.trees.runtime.program import Build, Compiled, Place
from dodona.trees.runtime.status import FAILURE, RUNNING, SUCCESS, Status
from dodona.trees.runtime.step import AsyncStep, Step, ThreadStep, interpret_result


def halt_nothing(frame: Frame) -> bool:
    """Halt what never runs on."""
    del frame
    return True


def compile_leaf(node: Node, build: Build) -> Compiled:
    leaf = node.leaf
    assert leaf is not None
    arguments = _arguments(node)
    if leaf.is_background:
        return _background_step(leaf, build, arguments)
    if leaf.step or leaf.wants_step:
        return _sync_step(leaf, build, arguments)
    if not leaf.wants_host and not any(node.expressions()):
        return Compiled(_bare(leaf, build.place), halt_nothing)
    return Compiled(_pure(leaf, build.place, arguments), halt_nothing)


Arguments = Callable[[Blackboard], Mapping[str, Any]]


def _arguments(node: Node) -> Arguments:
    """The leaf's keyword arguments as a function of the blackboard."""
    values: list[tuple[str, Callable[[Blackboard], Any]]] = [
        (option.replace("-", "_"), value.evaluate)
        for option, value in node.options.items()
        if isinstance(value, Expression)
    ]
    if not values:
        return _no_arguments
    return lambda board: {name: evaluate(board) for name, evaluate in values}


def _no_arguments(board: Blackboard) -> Mapping[str, Any]:
    del board
    return _NO_ARGUMENTS


_NO_ARGUMENTS: Mapping[str, Any] = {}


def _bare(leaf: Leaf, place: Place) -> TickFunction:
    """A pure leaf of nothing but the blackboard: the shortest way there is."""
    function = leaf.function

    def tick(frame: Frame) -> Status:
        try:
            result = function(frame.board)
        except (Exception, CancelledError) as error:  # noqa: BLE001 - the boundary of a node tick
            return frame.run.fail_node(place, frame, error)
        if result is None or result is True or result is SUCCESS:
            return SUCCESS
        if result is RUNNING and frame.polled:
            return RUNNING
        return _status(result, leaf, place, frame)

    return tick


def _pure(leaf: Leaf, place: Place, arguments: Arguments) -> TickFunction:
    function, wants_host = leaf.function, leaf.wants_host

    def tick(frame: Frame) -> Status:
        try:
            given = arguments(frame.board)
            if wants_host:
                result = function(frame.board, host=frame.run.host, **given)
            else:
                result = function(frame.board, **given)
        except (Exception, CancelledError) as error:  # noqa: BLE001 - the boundary of a node tick
            return frame.run.fail_node(place, frame, error)
        return _status(result, leaf, place, frame)

    return tick


def _sync_step(leaf: Leaf, build: Build, arguments: Arguments) -> Compiled:
    slot = build.add_slot()
    place = build.place

    def tick(frame: Frame) -> Status:
        step = frame.slots[slot]
        try:
            given = arguments(frame.board)
        except Exception as error:  # noqa: BLE001 - the boundary of a node tick
            frame.slots[slot] = None
            return frame.run.fail_node(place, frame, error)
        if step is None:
            step = Step(leaf, place, frame)
            known = step.begin_or_replay(given)
            if known is not None:
                return known
        try:
            result = step.call(given)
        except (Exception, CancelledError) as error:  # noqa: BLE001 - the boundary of a node tick
            frame.slots[slot] = None
            return step.finish(FAILURE, error)
        status, wrong = interpret_result(result, leaf.name)
        if status is RUNNING:
            # The same step goes on at the next tick: what it has written so far is part of it.
            frame.slots[slot] = step
            frame.mark_polled()
            return status
        frame.slots[slot] = None
        return step.finish(status, wrong)

    def halt(frame: Frame) -> bool:
        frame.slots[slot] = None
        return True

    return Compiled(tick, halt)


def _background_step(leaf: Leaf, build: Build, arguments: Arguments) -> Compiled:
    slot = build.add_slot()
    place = build.place
    make = ThreadStep if leaf.thread else AsyncStep

    def tick(frame: Frame) -> Status:
        work = frame.slots[slot]
        if work is None:
            return start(frame)
        if work.status is None:
            return RUNNING
        frame.slots[slot] = None
        return work.status

    def start(frame: Frame) -> Status:
        try:
            given = arguments(frame.board)
        except Exception as error:  # noqa: BLE001 - the boundary of a node tick
            # Nothing to journal: the same blackboard fails in the same way.
            return frame.run.fail_node(place, frame, error)
        work = make(leaf, place, frame)
        known = work.begin_or_replay(given)
        if known is not None:
            return known
        frame.slots[slot] = work
        work.start(given)
        return RUNNING

    def halt(frame: Frame) -> bool:
        work = frame.slots[slot]
        if work is not None and not work.stop():
            return False
        frame.slots[slot] = None
        return True

    return Compiled(tick, halt)


def _status(result: Any, leaf: Leaf, place: Place, frame: Frame) -> Status:
    status, error = interpret_result(result, leaf.name)
    if status is RUNNING:
        frame.mark_polled()
    return status if error is None else frame.run.fail_node(place, frame, error)
