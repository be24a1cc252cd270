"""(guard EXPRESSION CHILD): only while it holds.

| expression | child                | guard   |
|------------|----------------------|---------|
| true       | SUCCESS, FAILURE, RUNNING | as the child |
| false      | is not started, or halted if it runs | FAILURE once it has ended |

The expression is looked at again on every wake.
"""

from __future__ import annotations

from dodona.trees.language.node import ONE, Node, NodeKind
from dodona.trees.runtime.frame import Frame
from dodona.trees.runtime.program import Build, Compiled
from dodona.trees.runtime.status import FAILURE, RUNNING, Status


def compile_guard(node: Node, build: Build) -> Compiled:
    assert node.test is not None
    evaluate = node.test.evaluate
    place = build.place
    closing = build.add_slot(False)
    build.mark_polled()
    child = build.compile(node.children[0])

    def tick(frame: Frame) -> Status:
        if not frame.slots[closing]:
            if holds(frame):
                return child.tick(frame)
            frame.slots[closing] = True
        return FAILURE if halt(frame) else RUNNING

    def holds(frame: Frame) -> bool:
        try:
            return bool(evaluate(frame.board))
        except Exception as error:  # noqa: BLE001 - the boundary of a node tick
            frame.run.fail_node(place, frame, error)
            return False

    def halt(frame: Frame) -> bool:
        if not child.halt(frame):
            return False
        frame.slots[closing] = False
        return True

    return Compiled(tick, halt)


KIND = NodeKind(
    "guard",
    "Runs the child while an expression holds.",
    compile_guard,
    usage="(guard (blackboard :ready) CHILD)",
    arity=ONE,
    test_arity=ONE,
)
