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
from dodona.trees.runtime.trace import traced

if TYPE_CHECKING:
    from dodona.trees.runtime.run import Run

Visit = tuple[Frame, int]


class Debugger:
    """Breakpoints are node names, paths or leaf names; `step` begins at the very first node."""

    def __init__(self, breakpoints: Iterable[str] = (), *, step: bool = False) -> None:
        self.breakpoints = set(breakpoints)
        self.held: Place | None = None
        self._stepping = step
        self._at: Visit | None = None
        self._passing: Visit | None = None
        self._inside: set[Visit] = set()
        self._stopped = asyncio.Event()
        self._run: Run | None = None

    def attach(self, run: Run) -> None:
        """Serve this run; a breakpoint that none of its nodes has is a mistake."""
        self._run = run
        known = {name for place in run.program.places for name in _names(place)}
        for name in self.breakpoints - known:
            near = did_you_mean(name, known)
            raise BadRequest(f"no node is called '{name}'.", hint=near or "See: dodona tree show")

    @property
    def paused(self) -> bool:
        return self.held is not None

    async def wait_paused(self) -> Place:
        """Where the run stops next."""
        while self.held is None:  # a cancellation may let it go before we are awake
            await self._stopped.wait()
        return self.held

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
        self._at = self.held = None
        self._stopped.clear()

    def _release(self) -> None:
        self._passing, self._at, self.held = self._at, None, None
        self._stopped.clear()
        if self._run is not None:
            self._run.wake()

    def stops(self, place: Place, visit: Visit) -> bool:
        """Must this visit wait? True also for all that comes after the held one in its tick."""
        if self.held is not None:
            return True
        if self._passing is not None:
            # On the way back to where it stopped; what a reactive node looks at again on that
            # way would otherwise be stopped at for ever.
            if visit == self._passing:
                self._passing = None
            return False
        if visit in self._inside:
            return False
        if not self._stepping and not self._matches(place):
            return False
        self._stepping = False
        self.held, self._at = place, visit
        self._stopped.set()
        return True

    def ticked(self) -> None:
        """A tick is over: if the way back led elsewhere, it is given up."""
        self._passing = None

    def left(self, visit: Visit, status: Status) -> None:
        """A node that runs has been entered; it is not stopped at again until it ends."""
        if status is RUNNING:
            self._inside.add(visit)
        else:
            self._inside.discard(visit)

    def halted(self, visit: Visit) -> None:
        self._inside.discard(visit)

    def _matches(self, place: Place) -> bool:
        return not self.breakpoints.isdisjoint(_names(place))


def _names(place: Place) -> set[str]:
    """What a breakpoint may call this node."""
    names = {place.node.label, place.path}
    if place.node.leaf is not None:
        names.add(place.node.leaf.name)
    return names


def debugged(place: Place, compiled: Compiled) -> Compiled:
    """Ask the run's debugger before every visit."""
    index = place.index
    inner, stop = traced(place, compiled)

    def tick(frame: Frame) -> Status:
        debugger = frame.run.options.debugger
        assert debugger is not None
        visit = (frame, index)
        if debugger.stops(place, visit):
            frame.poll()
            return RUNNING
        status = inner(frame)
        debugger.left(visit, status)
        return status

    def halt(frame: Frame) -> bool:
        quiet = stop(frame)
        debugger = frame.run.options.debugger
        if quiet and debugger is not None:
            debugger.halted((frame, index))
        return quiet

    return Compiled(tick, halt)
