"""(sequence CHILD …): run all children in order.

| a child | sequence                                         |
|---------|--------------------------------------------------|
| SUCCESS | continues with the next; SUCCESS after the last  |
| FAILURE | FAILURE, the remaining children are not started  |
| RUNNING | RUNNING, continues there at the next tick        |

`:reactive true` starts at the first child on every wake: earlier conditions are checked again,
and if one fails, the later running child is halted. A child that was RUNNING and has ended is not
run again.
"""

from __future__ import annotations

from functools import partial

from dodona.trees.language.node import SOME, NodeKind, Option
from dodona.trees.nodes.ordered import compile_ordered
from dodona.trees.runtime.status import SUCCESS

KIND = NodeKind(
    "sequence",
    "Runs all children in order; stops at the first failure.",
    partial(compile_ordered, proceed=SUCCESS),
    usage="(sequence CHILD …)",
    arity=SOME,
    options={"reactive": Option("flag")},
)
