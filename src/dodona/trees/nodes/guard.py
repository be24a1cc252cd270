"""(guard EXPRESSION CHILD): run the child only while the expression is true.

| expression | child                | guard   |
|------------|----------------------|---------|
| true       | SUCCESS, FAILURE, RUNNING | the child's status |
| false      | is not started, or halted if running | FAILURE once the child has ended |

The expression is evaluated again on every wake.
"""

from __future__ import annotations

from dodona.trees.language.node import ONE, Node, NodeKind
from dodona.trees.runtime.frame import Frame
from dodona.trees.runtime.program import Build, Compiled
from dodona.trees.runtime.status import FAILURE, RUNNING, Status


def compile_guard(node: Node, build: Build) -> Compiled:
    """Compile a `guard` node."""
    assert node.test is not None
    evaluate = node.test.evaluate
    place = build.place
    halting_slot = build.add_slot(False)
    build.mark_polled()
    child = build.compile(node.children[0])

    def tick(frame: Frame) -> Status:
        if not frame.slots[halting_slot]:
            if holds(frame):
                return child.tick(frame)
            frame.slots[halting_slot] = True
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
        frame.slots[halting_slot] = False
        return True

    return Compiled(tick, halt)


KIND = NodeKind(
    "guard",
    "Runs the child while an expression is true.",
    compile_guard,
    usage="(guard (blackboard :ready) CHILD)",
    arity=ONE,
    test_arity=ONE,
)
