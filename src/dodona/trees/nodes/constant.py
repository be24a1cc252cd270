"""(succeed), (fail): return SUCCESS or FAILURE immediately."""

from __future__ import annotations

from functools import partial

from dodona.trees.language.node import Node, NodeKind
from dodona.trees.nodes.leaf import halt_nothing
from dodona.trees.runtime.frame import Frame
from dodona.trees.runtime.program import Build, Compiled
from dodona.trees.runtime.status import FAILURE, SUCCESS, Status


def _compile_constant(node: Node, build: Build, *, status: Status) -> Compiled:
    del node, build

    def tick(frame: Frame) -> Status:
        del frame
        return status

    return Compiled(tick, halt_nothing)


SUCCEED_KIND = NodeKind(
    "succeed",
    "Succeeds immediately.",
    partial(_compile_constant, status=SUCCESS),
    usage="(succeed)",
)
FAIL_KIND = NodeKind(
    "fail", "Fails immediately.", partial(_compile_constant, status=FAILURE), usage="(fail)"
)
