"""Events that wait to be told: in order, and never more than a number of them."""

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
    """The type of an event that nobody here set off, and how many it has set off since."""

    type: str
    cascade_count: int = 0


class QueuedEvent(NamedTuple):
    """`number` is the place in the order of all; `cause` is None for what came from outside."""

    number: int
    event: Event
    cause: Cause | None


class EventBuffer:
    """Full, it drops the oldest of the least severe, and tells how many those were."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._size = 0
        self._by_severity: tuple[deque[QueuedEvent], ...] = tuple(
            deque[QueuedEvent]() for _ in Severity
        )
        self._lost_by_user: Counter[str | None] = Counter()
        self.dropped = 0  # so far

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
        """All that waits, in order; before it, how many were lost, to each user their own."""
        taken = deque(self._loss_events())
        # Each is sorted already, and no number is there twice: this only merges them.
        taken.extend(sorted(chain.from_iterable(self._by_severity)))
        for queue in self._by_severity:
            queue.clear()
        self._size = 0
        return taken

    def _loss_events(self) -> Iterable[QueuedEvent]:
        lost, self._lost_by_user = self._lost_by_user, Counter()
        for user_id, count in lost.items():
            owner = {} if user_id is None else {"user_id": user_id}
            told = Event(EVENTS_LOST, "notify.bus", Severity.WARNING, {"count": count, **owner})
            yield QueuedEvent(maxsize, told, None)  # for all who listen by now
