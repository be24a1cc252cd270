"""(if TEST THEN ELSE): run one of two children. TEST is an expression or a condition.

| test    | if                                                          |
|---------|-------------------------------------------------------------|
| SUCCESS | runs THEN and returns its status                            |
| FAILURE | runs ELSE and returns its status; SUCCESS without ELSE      |
| RUNNING | RUNNING                                                     |
| raises  | counts as FAILURE: runs ELSE                                |

TEST is evaluated once. Unlike in a selector, a THEN that fails does not fall through to ELSE.
"""

from __future__ import annotations

from dodona.trees.language.node import TWO_OR_THREE, Node, NodeKind
from dodona.trees.runtime.frame import Frame
from dodona.trees.runtime.program import Build, Compiled
from dodona.trees.runtime.status import RUNNING, SUCCESS, Status

TEST, THEN, ELSE = 0, 1, 2


def compile_if(node: Node, build: Build) -> Compiled:
    """Compile an `if` node."""
    children = build.compile_children(node)
    slot = build.add_slot(TEST)

    def tick(frame: Frame) -> Status:
        current = frame.slots[slot]
        if current == TEST:
            result = children[TEST].tick(frame)
            if result is RUNNING:
                return RUNNING
            current = THEN if result is SUCCESS else ELSE
            if current == len(children):
                return SUCCESS
        status = children[current].tick(frame)
        frame.slots[slot] = current if status is RUNNING else TEST
        return status

    def halt(frame: Frame) -> bool:
        current: int = frame.slots[slot]
        if not children[current].halt(frame):
            return False
        frame.slots[slot] = TEST
        return True

    return Compiled(tick, halt)


KIND = NodeKind(
    "if",
    "Runs one of two children, depending on a test.",
    compile_if,
    usage="(if TEST THEN ELSE)",
    arity=TWO_OR_THREE,
    first_is_condition=True,
)
