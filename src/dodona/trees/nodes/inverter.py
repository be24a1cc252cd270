"""(inverter CHILD): swap success and failure of the child.

| child   | inverter |
|---------|----------|
| SUCCESS | FAILURE  |
| FAILURE | SUCCESS  |
| RUNNING | RUNNING  |
"""

from __future__ import annotations

from functools import partial

from dodona.trees.language.node import ONE, NodeKind
from dodona.trees.nodes.force import compile_mapped
from dodona.trees.runtime.status import FAILURE, SUCCESS

KIND = NodeKind(
    "inverter",
    "Swaps success and failure of the child.",
    partial(compile_mapped, success=FAILURE, failure=SUCCESS),
    usage="(inverter CHILD)",
    arity=ONE,
)
