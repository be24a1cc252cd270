"""(decorator NAME CHILD): a registered function before the child, and another after it.

| enter              | decorator                                                     |
|--------------------|---------------------------------------------------------------|
| nothing, true      | runs the child; ends as it does, unless `leave` says otherwise |
| false, or raises   | FAILURE, the child is not started                             |

`enter` is called when the child starts, `leave` when it has ended by itself.
"""

from __future__ import annotations

from typing import Any

from dodona.trees.frame import Frame
from dodona.trees.node import ONE, Node, NodeKind
from dodona.trees.program import Build, Compiled
from dodona.trees.status import FAILURE, RUNNING, Status
from dodona.trees.step import judged


def compile_decorator(node: Node, build: Build) -> Compiled:
    decoration = node.decoration
    assert decoration is not None
    inside = build.slot(False)
    child = build.compile(node.children[0])

    def tick(frame: Frame) -> Status:
        if not frame.slots[inside]:
            if read(decoration.enter(frame.board)) is FAILURE:
                return FAILURE
            frame.slots[inside] = True
        status = child.tick(frame)
        if status is RUNNING:
            return RUNNING
        frame.slots[inside] = False
        said = decoration.on_leave(frame.board, status) if decoration.on_leave else None
        return status if said is None else read(said)

    def read(result: Any) -> Status:
        status, error = judged(result, decoration.name, may_run=False)
        if error is not None:
            raise error
        return status

    def halt(frame: Frame) -> bool:
        if not child.halt(frame):
            return False
        frame.slots[inside] = False
        return True

    return Compiled(tick, halt)


KIND = NodeKind(
    "decorator",
    "Asks a registered function before and after the child.",
    compile_decorator,
    usage="(decorator NAME CHILD)",
    arity=ONE,
    raises=True,
    binds="decoration",
)
