"""(force-success CHILD), (force-failure CHILD): run the child and ignore its result.

| child   | force-success | force-failure |
|---------|---------------|---------------|
| SUCCESS | SUCCESS       | FAILURE       |
| FAILURE | SUCCESS       | FAILURE       |
| RUNNING | RUNNING       | RUNNING       |
"""

from __future__ import annotations

from functools import partial

from dodona.trees.language.node import ONE, Node, NodeKind
from dodona.trees.runtime.frame import Frame
from dodona.trees.runtime.program import Build, Compiled
from dodona.trees.runtime.status import FAILURE, RUNNING, SUCCESS, Status


def compile_mapped(node: Node, build: Build, *, success: Status, failure: Status) -> Compiled:
    """Compile a node that maps the child's success and failure to other statuses."""
    child = build.compile(node.children[0])
    inner = child.tick

    def tick(frame: Frame) -> Status:
        status = inner(frame)
        if status is RUNNING:
            return status
        return success if status is SUCCESS else failure

    return Compiled(tick, child.halt)


SUCCESS_KIND = NodeKind(
    "force-success",
    "Succeeds once the child has ended.",
    partial(compile_mapped, success=SUCCESS, failure=SUCCESS),
    usage="(force-success CHILD)",
    arity=ONE,
)
FAILURE_KIND = NodeKind(
    "force-failure",
    "Fails once the child has ended.",
    partial(compile_mapped, success=FAILURE, failure=FAILURE),
    usage="(force-failure CHILD)",
    arity=ONE,
)
