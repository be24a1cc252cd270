"""What the last ticks did: which nodes were visited, what they said, how long they took."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any

from dodona.trees.runtime.frame import Frame
from dodona.trees.runtime.program import Compiled, Place
from dodona.trees.runtime.status import FAILURE, RUNNING, Status

MAX_VISITS = 20_000

# One entry: a node's index, what it said (nothing when it was halted), and when. Two indexes are
# no node's.
_TICK_MARK, _ERROR_MARK = -1, -2


@dataclass(frozen=True, slots=True)
class Visit:
    place: Place
    status: Status
    seconds: float
    error: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class _HaltEntry:
    """A node is quiet. Idle ones are halted too; only what ran before makes it worth a note."""

    index: int
    at: float


@dataclass(frozen=True, slots=True)
class TracedTick:
    number: int
    at: float
    visits: tuple[Visit, ...]


@dataclass(slots=True)
class NodeTiming:
    """A node over the traced ticks; `elapsed` counts from its start to its end, waits included."""

    place: Place
    visits: int = 0
    busy_seconds: float = 0.0
    elapsed_seconds: float = 0.0
    last_status: Status | None = None


class Trace:
    """The last visits, newest last; older ones fall out."""

    def __init__(self, max_visits: int = MAX_VISITS) -> None:
        self._entries: deque[tuple[int, Any, int]] = deque(maxlen=max_visits)
        self._places: Sequence[Place] = ()
        self._origin = perf_counter_ns()
        self.record_visit = self._entries.append

    def attach(self, places: Sequence[Place]) -> None:
        """A run begins: its nodes are these."""
        self._places = places
        self._entries.clear()
        self._origin = perf_counter_ns()

    def begin_tick(self, number: int) -> None:
        self._entries.append((_TICK_MARK, number, perf_counter_ns()))

    def record_error(self, place: Place, error: Mapping[str, Any]) -> None:
        if self._places[place.index : place.index + 1] != (place,):
            return  # a node of the recovery tree
        self._entries.append((_ERROR_MARK, (place.index, error), perf_counter_ns()))

    @property
    def places(self) -> Sequence[Place]:
        return self._places

    def ticks(self) -> list[TracedTick]:
        """The traced ticks, oldest first."""
        found: list[TracedTick] = []
        number, at, visits = 0, 0.0, list[Visit]()
        for entry in self._iter_entries():
            if isinstance(entry, _HaltEntry):
                continue
            if isinstance(entry, Visit):
                visits.append(entry)
                continue
            if visits:
                found.append(TracedTick(number, at, tuple(visits)))
            (number, at), visits = entry, []
        if visits:
            found.append(TracedTick(number, at, tuple(visits)))
        return found

    def timings(self) -> list[NodeTiming]:
        """Every node that was visited, in the order of the file."""
        found: dict[int, NodeTiming] = {}
        started: dict[int, float] = {}
        tick = 0.0
        for entry in self._iter_entries():
            if isinstance(entry, Visit):
                index = entry.place.index
                timing = found.setdefault(index, NodeTiming(entry.place))
                timing.visits += 1
                timing.busy_seconds += entry.seconds
                timing.last_status = entry.status
                begun = started.setdefault(index, tick)
                if entry.status is not RUNNING:
                    timing.elapsed_seconds += max(tick - begun, 0.0) + entry.seconds
                    del started[index]
            elif isinstance(entry, _HaltEntry):
                if entry.index in started:
                    found[entry.index].elapsed_seconds += entry.at - started.pop(entry.index)
            else:
                tick = entry[1]
        return [found[index] for index in sorted(found)]

    def statuses(self) -> dict[int, Status]:
        """What each visited node said last, by index; one that was halted says nothing."""
        found: dict[int, Status] = {}
        for index, said, _ in tuple(self._entries):
            if index >= 0 and said is not None:
                found[index] = said
            elif found.get(index) is RUNNING:
                del found[index]
        return found

    def _iter_entries(self) -> Iterator[Visit | _HaltEntry | tuple[int, float]]:
        """Visits with their durations, halts, and tick marks.

        A node is entered after the node before it was left, and before those below it: so its
        time runs from the start of the first visit below it, or from the last entry.
        """
        below: list[tuple[int, int]] = []  # depth and start of visits not yet under a parent
        errors: dict[int, deque[Mapping[str, Any]]] = {}
        last = self._origin
        for index, said, at in tuple(self._entries):
            if index == _TICK_MARK:
                below.clear()
                yield said, (at - self._origin) / 1e9
            elif index == _ERROR_MARK:
                errors.setdefault(said[0], deque()).append(said[1])
                continue
            elif said is None:
                yield _HaltEntry(index, (at - self._origin) / 1e9)
            else:
                place, start = self._places[index], last
                while below and below[-1][0] > place.depth:
                    start = below.pop()[1]
                below.append((place.depth, start))
                waiting = errors.get(index) if said is FAILURE else None
                error = waiting.popleft() if waiting else None
                yield Visit(place, said, (at - start) / 1e9, error)
            last = at


def trace_node(place: Place, compiled: Compiled) -> Compiled:
    """Note every visit of the node: one clock reading, one append."""
    index, now = place.index, perf_counter_ns
    tick, stop = compiled

    def visited(frame: Frame) -> Status:
        status = tick(frame)
        frame.record_visit((index, status, now()))
        return status

    def halted(frame: Frame) -> bool:
        quiet = stop(frame)
        if quiet:
            frame.record_visit((index, None, now()))
        return quiet

    return Compiled(visited, halted)
