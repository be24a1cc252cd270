"""Stops a run in front of a node, lets people look, and goes on: to the end, or one node further.

A node that is held says RUNNING without being entered, and so does everything after it in that
tick; so a pause is just a tick that has not come far, and no thread is blocked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

from dodona.core.errors import BadRequest, did_you_mean
from dodona.trees.runtime.frame import Frame
from dodona.trees.runtime.program import Compiled, Place
from dodona.trees.runtime.status import RUNNING, Status
from dodona.trees.runtime.trace import trace_node

if TYPE_CHECKING:
    from dodona.trees.runtime.run import Run

VisitKey = tuple[Frame, int]


class Debugger:
    """Breakpoints are node names, paths or leaf names; `step` begins at the very first node."""

    def __init__(self, breakpoints: Iterable[str] = (), *, step: bool = False) -> None:
        self.breakpoints = set(breakpoints)
        self.paused_at: Place | None = None
        self._stepping = step
        self._paused_visit: VisitKey | None = None
        self._resuming_visit: VisitKey | None = None
        self._running_visits: set[VisitKey] = set()
        self._pause_event = asyncio.Event()
        self._run: Run | None = None

    def attach(self, run: Run) -> None:
        """Serve this run; a breakpoint that none of its nodes has is a mistake."""
        self._run = run
        known = {name for place in run.program.places for name in _breakpoint_names(place)}
        for name in self.breakpoints - known:
            near = did_you_mean(name, known)
            raise BadRequest(f"no node is called '{name}'.", hint=near or "See: dodona tree show")

    @property
    def is_paused(self) -> bool:
        return self.paused_at is not None

    async def wait_paused(self) -> Place:
        """Where the run stops next."""
        while self.paused_at is None:  # a cancellation may let it go before we are awake
            await self._pause_event.wait()
        return self.paused_at

    def resume(self) -> None:
        """Go on to the next breakpoint."""
        self._release()

    def step(self) -> None:
        """Go on to the next node."""
        self._stepping = True
        self._release()

    def detach(self) -> None:
        """Stop nowhere any more: the run is to end."""
        self._stepping = False
        self.breakpoints.clear()
        self._paused_visit = self.paused_at = None
        self._pause_event.clear()

    def _release(self) -> None:
        self._resuming_visit, self._paused_visit, self.paused_at = self._paused_visit, None, None
        self._pause_event.clear()
        if self._run is not None:
            self._run.wake()

    def should_pause(self, place: Place, visit: VisitKey) -> bool:
        """Must this visit wait? True also for all that comes after the held one in its tick."""
        if self.paused_at is not None:
            return True
        if self._resuming_visit is not None:
            # On the way back to where it stopped; what a reactive node looks at again on that
            # way would otherwise be stopped at for ever.
            if visit == self._resuming_visit:
                self._resuming_visit = None
            return False
        if visit in self._running_visits:
            return False
        if not self._stepping and not self._matches(place):
            return False
        self._stepping = False
        self.paused_at, self._paused_visit = place, visit
        self._pause_event.set()
        return True

    def on_tick_end(self) -> None:
        """A tick is over: if the way back led elsewhere, it is given up."""
        self._resuming_visit = None

    def on_node_status(self, visit: VisitKey, status: Status) -> None:
        """A node that runs has been entered; it is not stopped at again until it ends."""
        if status is RUNNING:
            self._running_visits.add(visit)
        else:
            self._running_visits.discard(visit)

    def on_node_halt(self, visit: VisitKey) -> None:
        self._running_visits.discard(visit)

    def _matches(self, place: Place) -> bool:
        return not self.breakpoints.isdisjoint(_breakpoint_names(place))


def _breakpoint_names(place: Place) -> set[str]:
    """What a breakpoint may call this node."""
    names = {place.node.label, place.path}
    if place.node.leaf is not None:
        names.add(place.node.leaf.name)
    return names


def debug_node(place: Place, compiled: Compiled) -> Compiled:
    """Ask the run's debugger before every visit."""
    index = place.index
    inner, stop = trace_node(place, compiled)

    def tick(frame: Frame) -> Status:
        debugger = frame.run.options.debugger
        assert debugger is not None
        visit = (frame, index)
        if debugger.should_pause(place, visit):
            frame.mark_polled()
            return RUNNING
        status = inner(frame)
        debugger.on_node_status(visit, status)
        return status

    def halt(frame: Frame) -> bool:
        quiet = stop(frame)
        debugger = frame.run.options.debugger
        if quiet and debugger is not None:
            debugger.on_node_halt((frame, index))
        return quiet

    return Compiled(tick, halt)
