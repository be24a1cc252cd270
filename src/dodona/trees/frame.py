"""Where a part of a tree keeps its state while it runs.

A program is compiled once and shared by all runs; what differs between them is in frames. One
region of the tree (the body, one child of a parallel, a subtree with keys of its own) has one
frame: a list with a slot for each node that must remember something, and the scope it sees.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dodona.trees.blackboard import Blackboard
from dodona.trees.status import Status

if TYPE_CHECKING:
    from dodona.trees.program import Region
    from dodona.trees.run import Run

Tick = Callable[["Frame"], Status]
# Ask a node to stop; True once nothing of it runs any more and its slots are as new.
Halt = Callable[["Frame"], bool]


class Frame:
    """`index` counts the children of a parallel; `phase` names a root that is not the body."""

    __slots__ = ("board", "index", "parent", "phase", "region", "run", "slots", "visit")

    def __init__(
        self,
        run: Run,
        region: Region,
        board: Blackboard,
        parent: Frame | None = None,
        index: int | None = None,
        phase: str = "",
    ) -> None:
        self.run = run
        self.region = region
        self.board = board
        self.parent = parent
        self.index = index
        self.phase = phase
        self.slots: list[Any] = region.initial.copy()
        self.visit = run.visit
