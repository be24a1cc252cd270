"""(decorator NAME CHILD): call registered functions before and after the child.

| enter              | decorator                                                     |
|--------------------|---------------------------------------------------------------|
| nothing, true      | runs the child and returns its status, unless `leave` returns another |
| false, or raises   | FAILURE, the child is not started                             |

`enter` is called before the child starts, `leave` after it has ended; a halted child does not
call `leave`. An `enter` that is a step is journalled: after a crash its result and writes are
replayed, and it is not called again.
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

# The colon prevents a conflict with a node's key.
ENTER = "/:enter"
_NO_ARGUMENTS: Mapping[str, Any] = {}


def compile_decorator(node: Node, build: Build) -> Compiled:
    """Compile a `decorator` node."""
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
    """Return an `enter` that calls the function directly."""
    del place
    function, wants_host = decoration.enter.function, decoration.enter.wants_host

    def enter(frame: Frame) -> Status:
        board = frame.board
        result = function(board, host=frame.run.host) if wants_host else function(board)
        return _read_status(result, decoration)

    return enter


def _journalled_enter(decoration: Decoration, place: Place) -> Callable[[Frame], Status]:
    """Return an `enter` that runs the function as a journalled step."""

    def enter(frame: Frame) -> Status:
        step = Step(decoration.enter, place, frame, ENTER)
        replayed = step.begin_or_replay(_NO_ARGUMENTS)
        if replayed is not None:
            return replayed
        try:
            result = step.call(_NO_ARGUMENTS)
        except (Exception, CancelledError) as error:  # noqa: BLE001 - the boundary of a node tick
            return step.finish(FAILURE, error)
        return step.finish(*interpret_result(result, decoration.name, allow_running=False))

    return enter


def _apply_on_leave(decoration: Decoration, frame: Frame, status: Status) -> Status:
    if decoration.on_leave is None:
        return status
    arguments = {"host": frame.run.host} if decoration.leave_wants_host else _NO_ARGUMENTS
    result = decoration.on_leave(frame.board, status, **arguments)
    return status if result is None else _read_status(result, decoration)


def _read_status(result: Any, decoration: Decoration) -> Status:
    status, error = interpret_result(result, decoration.name, allow_running=False)
    if error is not None:
        raise error
    return status


KIND = NodeKind(
    "decorator",
    "Calls a registered function before and after the child.",
    compile_decorator,
    usage="(decorator NAME CHILD)",
    arity=ONE,
    may_raise=True,
    binds="decoration",
)
