"""(sequence CHILD …): all of them, in order.

| a child | sequence                                         |
|---------|--------------------------------------------------|
| SUCCESS | goes on to the next; SUCCESS after the last      |
| FAILURE | FAILURE, the rest is not started                 |
| RUNNING | RUNNING, goes on there at the next tick          |

`:reactive true` starts at the first child on every wake: a condition in front is checked again,
and when it fails, what ran behind it is halted. A child that took
time and has ended is not run again.
"""

from __future__ import annotations

from dodona.trees.language.node import SOME, Node, NodeKind, Option
from dodona.trees.nodes.ordered import compile_ordered
from dodona.trees.runtime.program import Build, Compiled
from dodona.trees.runtime.status import SUCCESS


def compile_sequence(node: Node, build: Build) -> Compiled:
    return compile_ordered(node, build, SUCCESS)


KIND = NodeKind(
    "sequence",
    "All children in order; stops at the first failure.",
    compile_sequence,
    usage="(sequence CHILD …)",
    arity=SOME,
    options={"reactive": Option("flag")},
)
