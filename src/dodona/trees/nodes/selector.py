"""(selector CHILD …): the first that works.

| a child | selector                                         |
|---------|--------------------------------------------------|
| SUCCESS | SUCCESS, the rest is not started                 |
| FAILURE | goes on to the next; FAILURE after the last      |
| RUNNING | RUNNING, goes on there at the next tick          |

`:reactive true` starts at the first child on every wake: when an earlier one works now, what ran
behind it is halted. A child that took
time and has ended is not run again.
"""

from __future__ import annotations

from dodona.trees.language.node import SOME, Node, NodeKind, Option
from dodona.trees.nodes.ordered import compile_ordered
from dodona.trees.runtime.program import Build, Compiled
from dodona.trees.runtime.status import FAILURE


def compile_selector(node: Node, build: Build) -> Compiled:
    return compile_ordered(node, build, FAILURE)


KIND = NodeKind(
    "selector",
    "The first child that succeeds; fails when none does.",
    compile_selector,
    usage="(selector CHILD …)",
    arity=SOME,
    options={"reactive": Option("flag")},
)
