"""(subtree NAME CHILD), (subtree "name"): run a named part of the tree, or another tree.

Returns the status of its child. Keys of scope `:subtree` are reset each time it starts and
dropped when it ends. The `:finally` of a tree that is used by name always runs when that tree
ends; until then the subtree is RUNNING.
"""

from __future__ import annotations

from dodona.trees.language.node import Arity, Node, NodeKind, Option
from dodona.trees.language.schema import Schema, Scope
from dodona.trees.runtime.blackboard import LocalScope
from dodona.trees.runtime.frame import Frame
from dodona.trees.runtime.program import FINALLY, Branch, Build, Compiled
from dodona.trees.runtime.status import FAILURE, RUNNING, Status


class _Activation:
    """One execution of the subtree."""

    __slots__ = ("body", "finally_frame", "outcome", "watchdog_halts")

    def __init__(self, outer: Frame, local: Schema, body: Branch, final: Branch | None) -> None:
        board = LocalScope(outer.board, local, reserved=("_status",))
        self.body = Frame(outer.run, body.region, board, outer)
        self.finally_frame = final and Frame(outer.run, final.region, board, outer)
        self.outcome: Status | None = None
        self.watchdog_halts = 0

    def end(self, outcome: Status, status: str) -> None:
        self.outcome = outcome
        self.watchdog_halts = self.body.run.watchdog_halts
        self.body.board.set_reserved("_status", status)


def compile_subtree(node: Node, build: Build) -> Compiled:
    """Compile a `subtree` node."""
    root = node.tree.root if node.tree else node.children[0]
    last = node.tree.finally_node if node.tree else None
    schema = node.tree.schema if node.tree else node.schema
    local = schema.for_scopes(Scope.SUBTREE)
    if last is None and not local.keys:
        return build.compile(root)
    body = build.compile_branch(root)
    final = build.compile_branch(last, phase=FINALLY) if last else None
    scoped = _ScopedSubtree(build, local, body, final)
    return Compiled(scoped.tick, scoped.halt)


class _ScopedSubtree:
    """A subtree with local keys or with a :finally."""

    def __init__(self, build: Build, local: Schema, body: Branch, final: Branch | None) -> None:
        self._slot = build.add_slot()
        self._local = local
        self._body = body
        self._finally_branch = final

    def tick(self, frame: Frame) -> Status:
        activation = frame.slots[self._slot]
        if activation is None:
            activation = _Activation(frame, self._local, self._body, self._finally_branch)
            frame.slots[self._slot] = activation
        if activation.outcome is None:
            status = self._body.tick(activation.body)
            if status is RUNNING:
                return RUNNING
            activation.end(status, status.value)
        return self._run_finally_and_close(frame, activation)

    def halt(self, frame: Frame) -> bool:
        activation = frame.slots[self._slot]
        if activation is None:
            return True
        if activation.outcome is None:
            if not self._body.halt(activation.body):
                return False
            activation.end(FAILURE, "cancelled")
        return self._run_finally_and_close(frame, activation) is not RUNNING

    def _run_finally_and_close(self, frame: Frame, activation: _Activation) -> Status:
        if activation.finally_frame is not None and not self._run_finally(
            activation.finally_frame, activation.watchdog_halts
        ):
            return RUNNING
        frame.slots[self._slot] = None
        return activation.outcome or FAILURE

    def _run_finally(self, finally_frame: Frame, watchdog_halts: int) -> bool:
        assert self._finally_branch is not None
        # Only the watchdog can stop a :finally, and only one that was already running.
        if finally_frame.run.watchdog_halts > watchdog_halts:
            return self._finally_branch.halt(finally_frame)
        return self._finally_branch.tick(finally_frame) is not RUNNING


KIND = NodeKind(
    "subtree",
    "Runs a named part of the tree, or another tree.",
    compile_subtree,
    usage='(subtree "name") or (subtree NAME CHILD)',
    arity=Arity(0, 1),
    options={"blackboard-schema": Option("schema")},
    binds="tree",
)
