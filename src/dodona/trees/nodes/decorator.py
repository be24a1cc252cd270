"""(decorator NAME CHILD): a registered function before the child, and another after it.

| enter              | decorator                                                     |
|--------------------|---------------------------------------------------------------|
| nothing, true      | runs the child; ends as it does, unless `leave` says otherwise |
| false, or raises   | FAILURE, the child is not started                             |

`enter` is called when the child starts, `leave` when it has ended by itself. An `enter` that is a
step is journalled: after a crash what it said and wrote is applied, and it is not asked again.
"""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Callable, Mapping
from typing import Any

from dodona.trees.language.node import ONE, Node, NodeKind
from dodona.trees.runtime.frame import Frame
from dodona.trees.runtime.leaves import Decoration
from dodona.trees.runtime.program import Build, Compiled, Place
from dodona.trees.runtime.status import FAILURE, RUNNING, Status
from dodona.trees.runtime.step import Step, interpret_result

# A colon, so that no node's key is the same.
ENTER = "/:enter"
_NO_ARGUMENTS: Mapping[str, Any] = {}


def compile_decorator(node: Node, build: Build) -> Compiled:
    decoration = node.decoration
    assert decoration is not None
    inside = build.add_slot(False)
    enter = (_journalled_enter if decoration.enter.step else _direct_enter)(decoration, build.place)
    child = build.compile(node.children[0])

    def tick(frame: Frame) -> Status:
        if not frame.slots[inside]:
            if enter(frame) is FAILURE:
                return FAILURE
            frame.slots[inside] = True
        status = child.tick(frame)
        if status is RUNNING:
            return RUNNING
        frame.slots[inside] = False
        return _apply_on_leave(decoration, frame, status)

    def halt(frame: Frame) -> bool:
        if not child.halt(frame):
            return False
        frame.slots[inside] = False
        return True

    return Compiled(tick, halt)


def _direct_enter(decoration: Decoration, place: Place) -> Callable[[Frame], Status]:
    """Enter by a plain call."""
    del place
    function, wants_host = decoration.enter.function, decoration.enter.wants_host

    def enter(frame: Frame) -> Status:
        board = frame.board
        result = function(board, host=frame.run.host) if wants_host else function(board)
        return _read_status(result, decoration)

    return enter


def _journalled_enter(decoration: Decoration, place: Place) -> Callable[[Frame], Status]:
    """Enter by a step."""

    def enter(frame: Frame) -> Status:
        step = Step(decoration.enter, place, frame, ENTER)
        known = step.begin_or_replay(_NO_ARGUMENTS)
        if known is not None:
            return known
        try:
            result = step.call(_NO_ARGUMENTS)
        except (Exception, CancelledError) as error:  # noqa: BLE001 - the boundary of a node tick
            return step.finish(FAILURE, error)
        return step.finish(*interpret_result(result, decoration.name, allow_running=False))

    return enter


def _apply_on_leave(decoration: Decoration, frame: Frame, status: Status) -> Status:
    if decoration.on_leave is None:
        return status
    given = {"host": frame.run.host} if decoration.leave_wants_host else _NO_ARGUMENTS
    said = decoration.on_leave(frame.board, status, **given)
    return status if said is None else _read_status(said, decoration)


def _read_status(result: Any, decoration: Decoration) -> Status:
    status, error = interpret_result(result, decoration.name, allow_running=False)
    if error is not None:
        raise error
    return status


KIND = NodeKind(
    "decorator",
    "Asks a registered function before and after the child.",
    compile_decorator,
    usage="(decorator NAME CHILD)",
    arity=ONE,
    may_raise=True,
    binds="decoration",
)
