"""(if TEST THEN ELSE): one of two. TEST is an expression or a condition.

| test    | if                                                          |
|---------|-------------------------------------------------------------|
| SUCCESS | runs THEN and ends as it does                               |
| FAILURE | runs ELSE and ends as it does; SUCCESS when there is none   |
| RUNNING | RUNNING                                                     |
| raises  | has failed: runs ELSE                                       |

The choice is made once. Unlike a selector, a THEN that fails does not fall through to ELSE.
"""

from __future__ import annotations

from dodona.trees.language.node import TWO_OR_THREE, Node, NodeKind
from dodona.trees.runtime.frame import Frame
from dodona.trees.runtime.program import Build, Compiled
from dodona.trees.runtime.status import RUNNING, SUCCESS, Status

TEST, THEN, ELSE = 0, 1, 2


def compile_if(node: Node, build: Build) -> Compiled:
    children = build.compile_children(node)
    slot = build.add_slot(TEST)

    def tick(frame: Frame) -> Status:
        at = frame.slots[slot]
        if at == TEST:
            answer = children[TEST].tick(frame)
            if answer is RUNNING:
                return RUNNING
            at = THEN if answer is SUCCESS else ELSE
            if at == len(children):
                return SUCCESS
        status = children[at].tick(frame)
        frame.slots[slot] = at if status is RUNNING else TEST
        return status

    def halt(frame: Frame) -> bool:
        at: int = frame.slots[slot]
        if not children[at].halt(frame):
            return False
        frame.slots[slot] = TEST
        return True

    return Compiled(tick, halt)


KIND = NodeKind(
    "if",
    "Runs one of two children.",
    compile_if,
    usage="(if TEST THEN ELSE)",
    arity=TWO_OR_THREE,
    first_is_condition=True,
)
