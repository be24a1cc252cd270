"""(subtree NAME CHILD), (subtree "name"): a part with a name; a tree used inside another.

Ends as its child does. Keys of scope `:subtree` are fresh each time it starts and gone when it
ends. The `:finally` of a tree that is used by name runs when that tree ends, however it ends;
until then the subtree is RUNNING.
"""

from __future__ import annotations

from dodona.trees.language.node import Arity, Node, NodeKind, Option
from dodona.trees.language.schema import Schema, Scope
from dodona.trees.runtime.blackboard import LocalScope
from dodona.trees.runtime.frame import Frame
from dodona.trees.runtime.program import FINALLY, Branch, Build, Compiled
from dodona.trees.runtime.status import FAILURE, RUNNING, Status


class _Visit:
    """One time through the subtree."""

    __slots__ = ("body", "ending", "given_up", "outcome")

    def __init__(self, outer: Frame, local: Schema, body: Branch, final: Branch | None) -> None:
        board = LocalScope(outer.board, local, reserved=("_status",))
        self.body = Frame(outer.run, body.region, board, outer)
        self.ending = final and Frame(outer.run, final.region, board, outer)
        self.outcome: Status | None = None
        self.given_up = 0

    def end(self, outcome: Status, said: str) -> None:
        self.outcome = outcome
        self.given_up = self.body.run.given_up
        self.body.board.reserve("_status", said)


def compile_subtree(node: Node, build: Build) -> Compiled:
    root = node.tree.root if node.tree else node.children[0]
    last = node.tree.final if node.tree else None
    schema = node.tree.schema if node.tree else node.schema
    local = schema.of(Scope.SUBTREE)
    if last is None and not local.keys:
        return build.compile(root)
    body = build.branch(root)
    final = build.branch(last, phase=FINALLY) if last else None
    scoped = _Scoped(build, local, body, final)
    return Compiled(scoped.tick, scoped.halt)


class _Scoped:
    """A subtree with keys of its own, or with a :finally."""

    def __init__(self, build: Build, local: Schema, body: Branch, final: Branch | None) -> None:
        self._slot = build.slot()
        self._local = local
        self._body = body
        self._final = final

    def tick(self, frame: Frame) -> Status:
        visit = frame.slots[self._slot]
        if visit is None:
            visit = _Visit(frame, self._local, self._body, self._final)
            frame.slots[self._slot] = visit
        if visit.outcome is None:
            status = self._body.tick(visit.body)
            if status is RUNNING:
                return RUNNING
            visit.end(status, status.value)
        return self._close(frame, visit)

    def halt(self, frame: Frame) -> bool:
        visit = frame.slots[self._slot]
        if visit is None:
            return True
        if visit.outcome is None:
            if not self._body.halt(visit.body):
                return False
            visit.end(FAILURE, "cancelled")
        return self._close(frame, visit) is not RUNNING

    def _close(self, frame: Frame, visit: _Visit) -> Status:
        if visit.ending is not None and not self._has_ended(visit.ending, visit.given_up):
            return RUNNING
        frame.slots[self._slot] = None
        return visit.outcome or FAILURE

    def _has_ended(self, ending: Frame, given_up: int) -> bool:
        assert self._final is not None
        # Nobody may stop a :finally but the watchdog, and only one that was under way.
        if ending.run.given_up > given_up:
            return self._final.halt(ending)
        return self._final.tick(ending) is not RUNNING


KIND = NodeKind(
    "subtree",
    "A part with a name, or another tree.",
    compile_subtree,
    usage='(subtree "name") or (subtree NAME CHILD)',
    arity=Arity(0, 1),
    options={"blackboard-schema": Option("schema")},
    binds="tree",
)
