"""(force-success CHILD), (force-failure CHILD): the child runs, its result does not matter.

| child   | force-success | force-failure |
|---------|---------------|---------------|
| SUCCESS | SUCCESS       | FAILURE       |
| FAILURE | SUCCESS       | FAILURE       |
| RUNNING | RUNNING       | RUNNING       |
"""

from __future__ import annotations

from dodona.trees.language.node import ONE, Node, NodeKind
from dodona.trees.nodes.mapped import compile_mapped
from dodona.trees.runtime.program import Build, Compiled
from dodona.trees.runtime.status import FAILURE, SUCCESS


def compile_success(node: Node, build: Build) -> Compiled:
    return compile_mapped(node, build, success=SUCCESS, failure=SUCCESS)


def compile_failure(node: Node, build: Build) -> Compiled:
    return compile_mapped(node, build, success=FAILURE, failure=FAILURE)


SUCCESS_KIND = NodeKind(
    "force-success",
    "Succeeds once the child has ended.",
    compile_success,
    usage="(force-success CHILD)",
    arity=ONE,
)
FAILURE_KIND = NodeKind(
    "force-failure",
    "Fails once the child has ended.",
    compile_failure,
    usage="(force-failure CHILD)",
    arity=ONE,
)
