"""Leaves: functions that a tree calls with `action`, with `condition`, or by their name.

| the function                      | status                                        |
|-----------------------------------|-----------------------------------------------|
| returns nothing, true or SUCCESS  | SUCCESS                                       |
| returns false or FAILURE          | FAILURE                                       |
| returns RUNNING (sync only)       | RUNNING, called again at the next tick        |
| raises                            | FAILURE; the error is in `_error` and the trace |
| is async, or runs in a thread     | RUNNING until it has ended, then as above     |
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
    """Halt a node that never stays RUNNING: there is nothing to stop."""
    del frame
    return True


def compile_leaf(node: Node, build: Build) -> Compiled:
    """Compile a node that calls a leaf."""
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
    """Return the leaf's keyword arguments as a function of the blackboard."""
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
    """Return the tick of a pure leaf that takes only the blackboard: the fastest path."""
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
            keywords = arguments(frame.board)
            if wants_host:
                result = function(frame.board, host=frame.run.host, **keywords)
            else:
                result = function(frame.board, **keywords)
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
            keywords = arguments(frame.board)
        except Exception as error:  # noqa: BLE001 - the boundary of a node tick
            frame.slots[slot] = None
            return frame.run.fail_node(place, frame, error)
        if step is None:
            step = Step(leaf, place, frame)
            replayed = step.begin_or_replay(keywords)
            if replayed is not None:
                return replayed
        try:
            result = step.call(keywords)
        except (Exception, CancelledError) as error:  # noqa: BLE001 - the boundary of a node tick
            frame.slots[slot] = None
            return step.finish(FAILURE, error)
        status, error = interpret_result(result, leaf.name)
        if status is RUNNING:
            # The same step continues at the next tick; its writes so far belong to it.
            frame.slots[slot] = step
            frame.mark_polled()
            return status
        frame.slots[slot] = None
        return step.finish(status, error)

    def halt(frame: Frame) -> bool:
        frame.slots[slot] = None
        return True

    return Compiled(tick, halt)


def _background_step(leaf: Leaf, build: Build, arguments: Arguments) -> Compiled:
    slot = build.add_slot()
    place = build.place
    step_type = ThreadStep if leaf.thread else AsyncStep

    def tick(frame: Frame) -> Status:
        step = frame.slots[slot]
        if step is None:
            return start(frame)
        if step.status is None:
            return RUNNING
        frame.slots[slot] = None
        return step.status

    def start(frame: Frame) -> Status:
        try:
            keywords = arguments(frame.board)
        except Exception as error:  # noqa: BLE001 - the boundary of a node tick
            # Nothing to journal: the same blackboard raises the same error again.
            return frame.run.fail_node(place, frame, error)
        step = step_type(leaf, place, frame)
        replayed = step.begin_or_replay(keywords)
        if replayed is not None:
            return replayed
        frame.slots[slot] = step
        step.start(keywords)
        return RUNNING

    def halt(frame: Frame) -> bool:
        step = frame.slots[slot]
        if step is not None and not step.stop():
            return False
        frame.slots[slot] = None
        return True

    return Compiled(tick, halt)


def _status(result: Any, leaf: Leaf, place: Place, frame: Frame) -> Status:
    status, error = interpret_result(result, leaf.name)
    if status is RUNNING:
        frame.mark_polled()
    return status if error is None else frame.run.fail_node(place, frame, error)
