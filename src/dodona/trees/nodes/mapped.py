"""What inverter and the force nodes share: a child's end, read as another status."""

from __future__ import annotations

from dodona.trees.language.node import Node
from dodona.trees.runtime.frame import Frame
from dodona.trees.runtime.program import Build, Compiled
from dodona.trees.runtime.status import RUNNING, SUCCESS, Status


def compile_mapped(node: Node, build: Build, *, success: Status, failure: Status) -> Compiled:
    child = build.compile(node.children[0])
    inner = child.tick

    def tick(frame: Frame) -> Status:
        status = inner(frame)
        if status is RUNNING:
            return status
        return success if status is SUCCESS else failure

    return Compiled(tick, child.halt)
