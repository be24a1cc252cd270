"""(for-each LIST CHILD): run the child once per item, which is in `_item` and `_index`.

| child   | for-each                                             |
|---------|------------------------------------------------------|
| SUCCESS | continues with the next item; SUCCESS after the last |
| FAILURE | FAILURE, the remaining items are skipped             |
| RUNNING | RUNNING                                              |

The list is evaluated once, when the node starts; an empty list or nil is SUCCESS. Directly under a
parallel, each item becomes a child of the parallel instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dodona.core.errors import ExpressionError
from dodona.trees.language.node import ONE, Node, NodeKind, NodeProblem
from dodona.trees.language.schema import describe
from dodona.trees.nodes.repeater import YIELD_AFTER
from dodona.trees.runtime.blackboard import LocalScope
from dodona.trees.runtime.frame import Frame
from dodona.trees.runtime.program import Build, Compiled
from dodona.trees.runtime.status import RUNNING, SUCCESS, Status

ITEM_KEYS = ("_item", "_index")


def snapshot_items(node: Node, frame: Frame) -> tuple[Any, ...]:
    """Return the items at this moment."""
    assert node.test is not None
    value = node.test.evaluate(frame.board)
    if value is None:
        return ()
    if isinstance(value, list | tuple):
        return tuple(value)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    raise ExpressionError(
        f"for-each takes a list (got {describe(value)}).", where=node.test.form.span.location()
    )


class _Iteration:
    __slots__ = ("_items", "_next", "frame")

    def __init__(self, items: tuple[Any, ...], frame: Frame) -> None:
        self._items = items
        self._next = 0
        self.frame = frame

    def advance(self) -> bool:
        """Set `_item` and `_index` to the next item; return False if there is none left."""
        index = self._next
        if index == len(self._items):
            return False
        self._next += 1
        self.frame.index = index
        self.frame.board.set_reserved("_item", self._items[index])
        self.frame.board.set_reserved("_index", index)
        return True


def compile_for_each(node: Node, build: Build) -> Compiled:
    """Compile a `for-each` node."""
    slot = build.add_slot()
    branch = build.compile_branch(node.children[0])

    def tick(frame: Frame) -> Status:
        iteration = frame.slots[slot]
        if iteration is None:
            items = snapshot_items(node, frame)
            scope = LocalScope(frame.board, reserved=ITEM_KEYS)
            iteration = _Iteration(items, Frame(frame.run, branch.region, scope, frame))
            if not iteration.advance():
                return SUCCESS
            frame.slots[slot] = iteration
        for _ in range(YIELD_AFTER):
            status = branch.tick(iteration.frame)
            if status is RUNNING:
                return RUNNING
            if status is not SUCCESS or not iteration.advance():
                frame.slots[slot] = None
                return status
        frame.wake()
        return RUNNING

    def halt(frame: Frame) -> bool:
        iteration = frame.slots[slot]
        if iteration is not None and not branch.halt(iteration.frame):
            return False
        frame.slots[slot] = None
        return True

    return Compiled(tick, halt)


def _check(node: Node) -> Iterator[NodeProblem]:
    if node.test is not None and node.test.constant:
        value = node.test.value
        if value is not None and not isinstance(value, list):
            yield NodeProblem(f"for-each takes a list (got {describe(value)}).", "Write [a b c].")


KIND = NodeKind(
    "for-each",
    "Runs the child once for each item of a list.",
    compile_for_each,
    usage="(for-each (blackboard :items) CHILD)",
    arity=ONE,
    test_arity=ONE,
    expands=True,
    may_raise=True,
    check=_check,
)
