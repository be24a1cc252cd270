"""A trace of the last ticks: the visited nodes, their statuses and durations."""

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

# An entry has a node's index, its status (None if it was halted) and the time. These two indexes
# mark other entries.
_TICK_MARK, _ERROR_MARK = -1, -2


@dataclass(frozen=True, slots=True)
class Visit:
    """One tick of one node."""

    place: Place
    status: Status
    seconds: float
    error: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class _HaltEntry:
    """A halt of a node. Idle nodes are halted too; only the halt of a running node matters."""

    index: int
    at: float


@dataclass(frozen=True, slots=True)
class TracedTick:
    """One tick of the tree with its visits."""

    number: int
    at: float
    visits: tuple[Visit, ...]


@dataclass(slots=True)
class NodeTiming:
    """Totals of a node over the traced ticks.

    `elapsed_seconds` counts from the start to the end of the node, including waits.
    """

    place: Place
    visits: int = 0
    busy_seconds: float = 0.0
    elapsed_seconds: float = 0.0
    last_status: Status | None = None


class Trace:
    """The last visits, newest last; the oldest are dropped."""

    def __init__(self, max_visits: int = MAX_VISITS) -> None:
        self._entries: deque[tuple[int, Any, int]] = deque(maxlen=max_visits)
        self._places: Sequence[Place] = ()
        self._origin = perf_counter_ns()
        self.record_visit = self._entries.append

    def attach(self, places: Sequence[Place]) -> None:
        """Clear the trace for a new run with these places."""
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
        """Return the traced ticks, oldest first."""
        ticks: list[TracedTick] = []
        number, at, visits = 0, 0.0, list[Visit]()
        for entry in self._iter_entries():
            if isinstance(entry, _HaltEntry):
                continue
            if isinstance(entry, Visit):
                visits.append(entry)
                continue
            if visits:
                ticks.append(TracedTick(number, at, tuple(visits)))
            (number, at), visits = entry, []
        if visits:
            ticks.append(TracedTick(number, at, tuple(visits)))
        return ticks

    def timings(self) -> list[NodeTiming]:
        """Return the timing of every visited node, in file order."""
        by_index: dict[int, NodeTiming] = {}
        started: dict[int, float] = {}
        tick = 0.0
        for entry in self._iter_entries():
            if isinstance(entry, Visit):
                index = entry.place.index
                timing = by_index.setdefault(index, NodeTiming(entry.place))
                timing.visits += 1
                timing.busy_seconds += entry.seconds
                timing.last_status = entry.status
                begun = started.setdefault(index, tick)
                if entry.status is not RUNNING:
                    timing.elapsed_seconds += max(tick - begun, 0.0) + entry.seconds
                    del started[index]
            elif isinstance(entry, _HaltEntry):
                if entry.index in started:
                    by_index[entry.index].elapsed_seconds += entry.at - started.pop(entry.index)
            else:
                tick = entry[1]
        return [by_index[index] for index in sorted(by_index)]

    def statuses(self) -> dict[int, Status]:
        """Return the last status of each visited node by index, without halted nodes."""
        statuses: dict[int, Status] = {}
        for index, status, _ in tuple(self._entries):
            if index >= 0 and status is not None:
                statuses[index] = status
            elif statuses.get(index) is RUNNING:
                del statuses[index]
        return statuses

    def _iter_entries(self) -> Iterator[Visit | _HaltEntry | tuple[int, float]]:
        """Yield visits with their durations, halts, and tick marks.

        A node is entered after the previous node has returned, and before its children: its time
        starts with the first visit below it, or with the last entry.
        """
        below: list[tuple[int, int]] = []  # depth and start of visits without a parent so far
        errors: dict[int, deque[Mapping[str, Any]]] = {}
        last = self._origin
        for index, value, at in tuple(self._entries):
            if index == _TICK_MARK:
                below.clear()
                yield value, (at - self._origin) / 1e9
            elif index == _ERROR_MARK:
                errors.setdefault(value[0], deque()).append(value[1])
                continue
            elif value is None:
                yield _HaltEntry(index, (at - self._origin) / 1e9)
            else:
                place, start = self._places[index], last
                while below and below[-1][0] > place.depth:
                    start = below.pop()[1]
                below.append((place.depth, start))
                pending = errors.get(index) if value is FAILURE else None
                error = pending.popleft() if pending else None
                yield Visit(place, value, (at - start) / 1e9, error)
            last = at


def trace_node(place: Place, compiled: Compiled) -> Compiled:
    """Instrument a node: record every visit with one clock reading and one append."""
    index, now = place.index, perf_counter_ns
    tick, halt = compiled

    def traced_tick(frame: Frame) -> Status:
        status = tick(frame)
        frame.record_visit((index, status, now()))
        return status

    def traced_halt(frame: Frame) -> bool:
        is_stopped = halt(frame)
        if is_stopped:
            frame.record_visit((index, None, now()))
        return is_stopped

    return Compiled(traced_tick, traced_halt)
