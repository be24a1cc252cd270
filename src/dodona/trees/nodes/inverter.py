"""(inverter CHILD): swap success and failure of the child.

| child   | inverter |
|---------|----------|
| SUCCESS | FAILURE  |
| FAILURE | SUCCESS  |
| RUNNING | RUNNING  |
"""

from __future__ import annotations

from dodona.trees.language.node import ONE, Node, NodeKind
from dodona.trees.nodes.force import compile_mapped
from dodona.trees.runtime.program import Build, Compiled
from dodona.trees.runtime.status import FAILURE, SUCCESS


def compile_inverter(node: Node, build: Build) -> Compiled:
    """Compile an `inverter` node."""
    return compile_mapped(node, build, success=FAILURE, failure=SUCCESS)


KIND = NodeKind(
    "inverter",
    "Swaps success and failure of the child.",
    compile_inverter,
    usage="(inverter CHILD)",
    arity=ONE,
)
