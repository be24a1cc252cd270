"""(set :key EXPRESSION …): write to the blackboard. SUCCESS; FAILURE if a value is rejected."""

from __future__ import annotations

from collections.abc import Iterator

from dodona.trees.language.node import Node, NodeKind, NodeProblem
from dodona.trees.nodes.leaf import halt_nothing
from dodona.trees.runtime.frame import Frame
from dodona.trees.runtime.program import Build, Compiled
from dodona.trees.runtime.status import SUCCESS, Status


def compile_set(node: Node, build: Build) -> Compiled:
    """Compile a `set` node."""
    del build
    entries = tuple((key, value.evaluate) for key, value in node.options.items())

    def tick(frame: Frame) -> Status:
        # Evaluate all values before the first write, so that none sees a new value.
        values = [(key, evaluate(frame.board)) for key, evaluate in entries]
        for key, value in values:
            frame.board[key] = value
        return SUCCESS

    return Compiled(tick, halt_nothing)


def _check(node: Node) -> Iterator[NodeProblem]:
    if not node.options:
        yield NodeProblem("'set' writes nothing.", "Write (set :key VALUE).")
    for key in node.options:
        if key.startswith("_"):
            yield NodeProblem(f"key ':{key}' is reserved for the runtime.", "Use another name.")


KIND = NodeKind(
    "set",
    "Writes keys to the blackboard.",
    compile_set,
    usage="(set :key VALUE)",
    allows_extra_options=True,
    writes_options=True,
    may_raise=True,
    check=_check,
)
