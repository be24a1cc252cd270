"""(condition EXPRESSION), (condition NAME :fn "dotted.name"): test an expression or a leaf.

| the expression, or the leaf | condition |
|-----------------------------|-----------|
| true, any non-empty value   | SUCCESS   |
| false, nil, 0, empty        | FAILURE   |
| raises                      | FAILURE   |

For the result of a leaf, see leaf.py.
"""

from __future__ import annotations

from dodona.trees.language.node import Arity, Node, NodeKind, Option
from dodona.trees.nodes.leaf import compile_leaf, halt_nothing
from dodona.trees.runtime.frame import Frame
from dodona.trees.runtime.program import Build, Compiled
from dodona.trees.runtime.status import FAILURE, SUCCESS, Status


def compile_condition(node: Node, build: Build) -> Compiled:
    """Compile a `condition` node."""
    if node.test is None:
        return compile_leaf(node, build)
    evaluate = node.test.evaluate

    def tick(frame: Frame) -> Status:
        return SUCCESS if evaluate(frame.board) else FAILURE

    return Compiled(tick, halt_nothing)


KIND = NodeKind(
    "condition",
    "Succeeds if an expression is true or a leaf succeeds.",
    compile_condition,
    usage="(condition (> (blackboard :turn) 3)) or (condition NAME)",
    options={"fn": Option("text")},
    test_arity=Arity(0, 1),
    allows_extra_options=True,
    may_raise=True,
    binds="leaf",
)
