"""A bounded, ordered buffer of events that wait for dispatch."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from sys import maxsize
from typing import Final, NamedTuple

from dodona.core.events import Event, Severity

EVENTS_LOST: Final = "events.lost"


@dataclass(slots=True)
class Cause:
    """The type of an external event, and the number of events that handlers emitted for it."""

    type: str
    cascade_count: int = 0


class QueuedEvent(NamedTuple):
    """An event in the buffer: `number` orders all events, `cause` is None for external events."""

    number: int
    event: Event
    cause: Cause | None


class EventBuffer:
    """When full, drops the oldest of the least severe events and reports how many were lost."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._size = 0
        self._by_severity: tuple[deque[QueuedEvent], ...] = tuple(
            deque[QueuedEvent]() for _ in Severity
        )
        self._lost_by_user: Counter[str | None] = Counter()
        self.dropped = 0  # in total

    def __bool__(self) -> bool:
        return self._size > 0

    def put(self, queued: QueuedEvent) -> None:
        self._by_severity[queued.event.severity.rank].append(queued)
        if self._size < self._capacity:
            self._size += 1
            return
        dropped = next(queue for queue in self._by_severity if queue).popleft()
        self._lost_by_user[dropped.event.payload.get("user_id")] += 1
        self.dropped += 1

    def drain(self) -> deque[QueuedEvent]:
        """Remove and return all events in order, preceded by one `events.lost` per user."""
        drained = deque(self._loss_events())
        # Each queue is already sorted and numbers are unique, so this only merges them.
        drained.extend(sorted(chain.from_iterable(self._by_severity)))
        for queue in self._by_severity:
            queue.clear()
        self._size = 0
        return drained

    def _loss_events(self) -> Iterable[QueuedEvent]:
        lost, self._lost_by_user = self._lost_by_user, Counter()
        for user_id, count in lost.items():
            owner = {} if user_id is None else {"user_id": user_id}
            event = Event(EVENTS_LOST, "notify.bus", Severity.WARNING, {"count": count, **owner})
            yield QueuedEvent(maxsize, event, None)  # for all current listeners
