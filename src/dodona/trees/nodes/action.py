"""(action NAME :fn "dotted.name" :argument VALUE …): call a leaf. See leaf.py for its table.

Without `:fn`, NAME is the leaf's name. Every other keyword is an argument of the function:
`:max-tokens 100` passes `max_tokens=100`.
"""

from __future__ import annotations

from dodona.trees.language.node import NodeKind, Option
from dodona.trees.nodes.leaf import compile_leaf

KIND = NodeKind(
    "action",
    "Calls a leaf.",
    compile_leaf,
    usage='(action NAME :fn "dotted.name")',
    options={"fn": Option("text")},
    allows_extra_options=True,
    binds="leaf",
)
