"""(wait :seconds 1): RUNNING for this time, then SUCCESS. A timer wakes the tree; nothing polls."""

from __future__ import annotations

from dodona.trees.language.node import Node, NodeKind, Option
from dodona.trees.nodes.timeout import MAX_SECONDS
from dodona.trees.runtime.frame import Frame
from dodona.trees.runtime.program import Build, Compiled
from dodona.trees.runtime.status import RUNNING, SUCCESS, Status
from dodona.trees.runtime.timer import Timer


def compile_wait(node: Node, build: Build) -> Compiled:
    """Compile a `wait` node."""
    seconds = node.number_option("seconds")
    slot = build.add_slot()

    def tick(frame: Frame) -> Status:
        timer = frame.slots[slot]
        if timer is None:
            frame.slots[slot] = Timer(frame, min(seconds(frame.board), MAX_SECONDS))
            return RUNNING
        if not timer.fired:
            return RUNNING
        frame.slots[slot] = None
        return SUCCESS

    def halt(frame: Frame) -> bool:
        timer = frame.slots[slot]
        if timer is not None:
            timer.cancel()
            frame.slots[slot] = None
        return True

    return Compiled(tick, halt)


KIND = NodeKind(
    "wait",
    "Waits for a number of seconds.",
    compile_wait,
    usage="(wait :seconds 1)",
    options={"seconds": Option("number", minimum=0, required=True)},
    may_raise=True,
)
