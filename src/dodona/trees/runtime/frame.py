"""Where a part of a tree keeps its state while it runs.

A program is compiled once and shared by all runs; what differs between them is in frames. One
region of the tree (the body, one child of a parallel, a subtree with keys of its own) has one
frame: a list with a slot for each node that must remember something, and the scope it sees.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from dodona.trees.runtime.blackboard import Blackboard
from dodona.trees.runtime.status import Status

if TYPE_CHECKING:
    from dodona.trees.runtime.program import Region
    from dodona.trees.runtime.run import Run

TickFunction = Callable[["Frame"], Status]
# Ask a node to stop; True once nothing of it runs any more and its slots are as new.
HaltFunction = Callable[["Frame"], bool]


class WakeListener(Protocol):
    """Who lets the frame sleep until something in it happens: a parallel, of its children."""

    def on_wake(self, frame: Frame) -> None: ...


class Frame:
    """`index` counts the children of a parallel; `phase` names a root that is not the body.

    A frame is `polled` when it must see every tick: a guard or a reactive node in it watches the
    blackboard, or a leaf that is no task said RUNNING. Any other may sleep until it is woken.
    """

    __slots__ = (
        "board",
        "index",
        "parent",
        "phase",
        "polled",
        "record_visit",
        "region",
        "run",
        "slots",
        "wake_listener"
    )  # fmt: skip

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
        self.wake_listener: WakeListener | None = None
        self.record_visit = run.record_visit

    def reset_for(self, region: Region, index: int) -> None:
        """Serve the next child of a parallel, whose sibling has left nothing behind."""
        self.region = region
        self.index = index
        self.polled = region.polled
        self.slots = region.initial_slots.copy()

    def is_in_finally(self) -> bool:
        """Does this belong to a :finally?"""
        frame: Frame | None = self
        while frame is not None:
            if frame.region.phase:
                return True
            frame = frame.parent
        return False

    def wake(self) -> None:
        """Something here has happened: tick soon, all the way down to this frame."""
        frame: Frame | None = self
        while frame is not None:
            if frame.wake_listener is not None:
                frame.wake_listener.on_wake(frame)
            frame = frame.parent
        self.run.wake()

    def mark_polled(self) -> None:
        """Something here is to see every tick from now on."""
        frame: Frame | None = self
        while frame is not None:
            frame.polled = True
            frame = frame.parent
