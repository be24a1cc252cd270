"""Pauses a run before a node, and resumes it: to the next breakpoint, or by one node.

A paused node returns RUNNING without being entered, and so do all nodes after it in that tick. A
pause is therefore an incomplete tick, and no thread is blocked.
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
    """Breakpoints are node names, paths or leaf names. With `step` it pauses at the first node."""

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
        """Attach to a run. Raise BadRequest for a breakpoint that matches none of its nodes."""
        self._run = run
        names = {name for place in run.program.places for name in _breakpoint_names(place)}
        for name in self.breakpoints - names:
            near = did_you_mean(name, names)
            raise BadRequest(f"no node is called '{name}'.", hint=near or "See: dodona tree show")

    @property
    def is_paused(self) -> bool:
        return self.paused_at is not None

    async def wait_paused(self) -> Place:
        """Wait until the run is paused. Return the place of the node."""
        while self.paused_at is None:  # a cancellation may resume it before this task wakes up
            await self._pause_event.wait()
        return self.paused_at

    def resume(self) -> None:
        """Run to the next breakpoint."""
        self._release()

    def step(self) -> None:
        """Run to the next node."""
        self._stepping = True
        self._release()

    def detach(self) -> None:
        """Remove all breakpoints and resume, so that the run can end."""
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
        """Return whether this visit must wait: true for the paused node and all after it."""
        if self.paused_at is not None:
            return True
        if self._resuming_visit is not None:
            # On the way back to the paused node. Otherwise the nodes that a reactive node
            # checks again on the way would pause the run forever.
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
        """End the resume: if this tick did not reach the paused node, stop looking for it."""
        self._resuming_visit = None

    def on_node_status(self, visit: VisitKey, status: Status) -> None:
        """Track running nodes: a node that was entered is not paused again until it ends."""
        if status is RUNNING:
            self._running_visits.add(visit)
        else:
            self._running_visits.discard(visit)

    def on_node_halt(self, visit: VisitKey) -> None:
        self._running_visits.discard(visit)

    def _matches(self, place: Place) -> bool:
        return not self.breakpoints.isdisjoint(_breakpoint_names(place))


def _breakpoint_names(place: Place) -> set[str]:
    """Return the names by which a breakpoint can refer to this node."""
    names = {place.node.label, place.path}
    if place.node.leaf is not None:
        names.add(place.node.leaf.name)
    return names


def debug_node(place: Place, compiled: Compiled) -> Compiled:
    """Instrument a node: consult the run's debugger before every visit."""
    index = place.index
    inner_tick, inner_halt = trace_node(place, compiled)

    def tick(frame: Frame) -> Status:
        debugger = frame.run.options.debugger
        assert debugger is not None
        visit = (frame, index)
        if debugger.should_pause(place, visit):
            frame.mark_polled()
            return RUNNING
        status = inner_tick(frame)
        debugger.on_node_status(visit, status)
        return status

    def halt(frame: Frame) -> bool:
        is_stopped = inner_halt(frame)
        debugger = frame.run.options.debugger
        if is_stopped and debugger is not None:
            debugger.on_node_halt((frame, index))
        return is_stopped

    return Compiled(tick, halt)
