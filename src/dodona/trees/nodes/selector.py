"""(selector CHILD …): run children in order until one succeeds.

| a child | selector                                         |
|---------|--------------------------------------------------|
| SUCCESS | SUCCESS, the remaining children are not started  |
| FAILURE | continues with the next; FAILURE after the last  |
| RUNNING | RUNNING, continues there at the next tick        |

`:reactive true` starts at the first child on every wake: if an earlier child now succeeds or is
RUNNING, the later running child is halted. A child that was RUNNING and has ended is not run
again.
"""

from __future__ import annotations

from functools import partial

from dodona.trees.language.node import SOME, NodeKind, Option
from dodona.trees.nodes.ordered import compile_ordered
from dodona.trees.runtime.status import FAILURE

KIND = NodeKind(
    "selector",
    "Runs children in order until one succeeds; fails if none does.",
    partial(compile_ordered, proceed=FAILURE),
    usage="(selector CHILD …)",
    arity=SOME,
    options={"reactive": Option("flag")},
)
