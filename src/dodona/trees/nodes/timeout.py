"""(timeout :seconds 30 CHILD): run the child with a deadline.

| child                    | timeout                                             |
|--------------------------|-----------------------------------------------------|
| SUCCESS, FAILURE in time | the child's status                                  |
| RUNNING at the deadline  | the child is halted; FAILURE once it has ended      |
"""

from __future__ import annotations

from dodona.core.errors import TreeError
from dodona.trees.language.node import ONE, Node, NodeKind, Option
from dodona.trees.runtime.frame import Frame
from dodona.trees.runtime.program import Build, Compiled
from dodona.trees.runtime.status import RUNNING, Status
from dodona.trees.runtime.timer import Timer

MAX_SECONDS = 10.0**9  # about thirty years: in effect no deadline, and no clock overflows


def compile_timeout(node: Node, build: Build) -> Compiled:
    """Compile a `timeout` node."""
    seconds = node.number_option("seconds")
    slot = build.add_slot()
    place = build.place
    child = build.compile(node.children[0])

    def tick(frame: Frame) -> Status:
        timer = frame.slots[slot]
        if timer is not None and timer.fired:
            return expire(frame)
        limit = seconds(frame.board) if timer is None else 0
        status = child.tick(frame)
        if status is RUNNING:
            # Only a child that is RUNNING needs a timer.
            if timer is None:
                frame.slots[slot] = Timer(frame, min(limit, MAX_SECONDS))
            return RUNNING
        if timer is not None:
            timer.cancel()
            frame.slots[slot] = None
        return status

    def expire(frame: Frame) -> Status:
        if not child.halt(frame):
            return RUNNING
        frame.slots[slot] = None
        return frame.run.fail_node(place, frame, TreeError("the time limit was reached."))

    def halt(frame: Frame) -> bool:
        timer = frame.slots[slot]
        if timer is not None:
            timer.cancel()
        if not child.halt(frame):
            return False
        frame.slots[slot] = None
        return True

    return Compiled(tick, halt)


KIND = NodeKind(
    "timeout",
    "Halts the child at a deadline and fails.",
    compile_timeout,
    usage="(timeout :seconds 30 CHILD)",
    arity=ONE,
    options={"seconds": Option("number", minimum=0, required=True)},
    may_raise=True,
)
