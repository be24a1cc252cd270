"""Frames: the state of a part of a tree while it runs.

A program is compiled once and shared by all runs; frames hold the state of one run. Each region
of the tree (the body, a child of a parallel, a subtree with local keys) has one frame: a list
with a slot for each node that has state, and the blackboard scope of the region.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dodona.trees.runtime.blackboard import Blackboard
from dodona.trees.runtime.status import Status

if TYPE_CHECKING:
    from dodona.trees.runtime.program import Region
    from dodona.trees.runtime.run import Run

TickFunction = Callable[["Frame"], Status]
# Asks a node to stop; returns True once nothing in it is running and its slots are reset.
HaltFunction = Callable[["Frame"], bool]


class Frame:
    """The state of one region in one run.

    `index` is the number of a parallel's child; `phase` names a root that is not the body.

    A frame is `polled` if it needs every tick: a guard or a reactive node in it watches the
    blackboard, or a synchronous leaf returned RUNNING. Any other frame sleeps until it is woken.
    """

    __slots__ = (
        "board",
        "index",
        "on_wake",
        "parent",
        "phase",
        "polled",
        "record_visit",
        "region",
        "run",
        "slots",
    )

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
        self.slots: list[Any] = region.initial_slots.copy()
        self.polled = region.polled
        # Called when a sleeping frame must be ticked: by a parallel, for its children.
        self.on_wake: Callable[[Frame], None] | None = None
        self.record_visit = run.record_visit

    def reset_for(self, region: Region, index: int) -> None:
        """Reuse the frame for the next child of a parallel, after its sibling has ended."""
        self.region = region
        self.index = index
        self.polled = region.polled
        self.slots = region.initial_slots.copy()

    def is_in_finally(self) -> bool:
        """Return whether this frame belongs to a :finally."""
        frame: Frame | None = self
        while frame is not None:
            if frame.region.phase:
                return True
            frame = frame.parent
        return False

    def wake(self) -> None:
        """Schedule a tick that reaches this frame."""
        frame: Frame | None = self
        while frame is not None:
            if frame.on_wake is not None:
                frame.on_wake(frame)
            frame = frame.parent
        self.run.wake()

    def mark_polled(self) -> None:
        """Make this frame and its ancestors receive every tick from now on."""
        frame: Frame | None = self
        while frame is not None:
            frame.polled = True
            frame = frame.parent
