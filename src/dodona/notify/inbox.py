"""What one run has heard and not told yet.

An event becomes part of a batch for each subscriber that wants it. A batch is told at its point,
when its window has passed or when it is full; so what happens in between is told at once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

from dodona.conditions import Given
from dodona.core.domain.notices import InjectionPoint, Notice, StoredNotice
from dodona.core.events import Event, Severity
from dodona.notify.batch import Batch
from dodona.notify.buffer import EVENTS_LOST
from dodona.notify.scheduled import ScheduledNotice, expected, ids, is_due_at_once
from dodona.notify.subscriber import Subscriber, as_values

MOST_WAITING: Final = 200
MOST_EXPECTED: Final = 200
NOTICES_LOST: Final = "notices_lost"


class Known(Protocol):
    """The subscribers there are now: they may be others with the next event."""

    def wanting(self, type_: str) -> Sequence[Subscriber]: ...

    def get(self, id_: str) -> Subscriber | None: ...


class Inbox:
    """Of one user, who has turned some subscribers on or off. `clock` tells seconds since 1970."""

    def __init__(
        self,
        known: Known,
        *,
        disabled: Collection[str] = (),
        enabled: Collection[str] = (),
        clock: Callable[[], float],
    ) -> None:
        self._known = known
        # No copies: what a user changes takes effect with the next event.
        self._disabled = disabled
        self._enabled = enabled
        self._clock = clock
        self._batches: list[Batch] = []  # in the order in which they began
        self._open: dict[tuple[str, str], Batch] = {}  # the last of each subscriber and key
        self._expected: list[ScheduledNotice] = []
        self._last_delivered: dict[
            tuple[str, str], float
        ] = {}  # when, of those that are then held back
        self._lost = 0

    def receive(self, event: Event) -> None:
        """Let the subscribers that want it make a notice of an event, or add it to one."""
        if self._expected:
            values = Given(_values(event))
            self._release(lambda each: each.is_due_with(event, values))
        self._take(event, None)

    def schedule(self, notices: Iterable[StoredNotice]) -> None:
        """Tell these too, each when it is due, as if its event happened then.

        What is too much is left to the next run: it is stored.
        """
        known = ids(self._expected).union(*(batch.stored for batch in self._batches))
        for notice in notices:
            if notice.id in known:
                continue
            known.add(notice.id)
            if is_due_at_once(notice):
                self._take(notice.event, notice.id)
            elif len(self._expected) < MOST_EXPECTED:
                self._expected.append(expected(notice))

    def has(self, *points: InjectionPoint) -> bool:
        """Does anything wait for one of these points? Its time may not have come."""
        wanted = {*points, InjectionPoint.IMMEDIATE}
        return (
            self._lost > 0
            or any(batch.point in wanted for batch in self._batches)
            or any(
                subscriber.point in wanted
                for each in self._expected
                for subscriber in self._known.wanting(each.event.type)
            )
        )

    def drain(self, *points: InjectionPoint, is_last: bool = False) -> list[Notice]:
        """Take what is due at these points, the most urgent first.

        What is immediate is due at any point.
        """
        now = self._clock()
        self._release(lambda each: each.is_due_at(now))
        wanted = {*points, InjectionPoint.IMMEDIATE}
        due = [b for b in self._batches if b.point in wanted and (is_last or self._is_due(b, now))]
        if due:
            self._close(due, now)
        made = (batch.notice() for batch in sorted(due, key=lambda batch: -batch.urgency))
        return [*self._summary(points), *(notice for notice in made if notice is not None)]

    def as_json(self) -> Sequence[Any]:
        """All that waits; what `restore` takes."""
        return [
            *({"batch": batch.as_json()} for batch in self._batches),
            *({"expected": each.as_json()} for each in self._expected),
            *({"told": [*key, at]} for key, at in self._last_delivered.items()),
            *([{"lost": self._lost}] if self._lost else []),
        ]

    def restore(self, kept: Sequence[Any]) -> None:
        """Hold just this."""
        self._batches, self._open, self._expected = [], {}, []
        self._last_delivered, self._lost = {}, 0
        for each in kept:
            match each:
                case {"batch": batch}:
                    self._begin(Batch.read(batch, self._known.get(batch["subscriber"])))
                case {"expected": notice}:
                    self._expected.append(ScheduledNotice.read(notice))
                case {"told": [subscriber, key, at]}:
                    self._last_delivered[subscriber, key] = at
                case {"lost": count}:
                    self._lost = count
                case _:
                    raise ValueError(f"an inbox cannot hold {each!r:.80}")

    def _take(self, event: Event, stored: int | None) -> None:
        wanting = self._known.wanting(event.type)
        if not wanting:
            return
        values = _values(event)
        given = Given(values)  # conditions share what they look at
        for subscriber in wanting:
            if self._is_on(subscriber) and subscriber.wants(event, given):
                self._add(subscriber, subscriber.key(values), event, stored)

    def _is_on(self, subscriber: Subscriber) -> bool:
        if subscriber.about.core:
            return True
        is_on = subscriber.about.enabled or subscriber.id in self._enabled
        return is_on and subscriber.id not in self._disabled

    def _add(self, subscriber: Subscriber, key: str, event: Event, stored: int | None) -> None:
        batch = self._open.get((subscriber.id, key))
        if batch is None or batch.is_full:
            batch = Batch(subscriber, subscriber.id, key, self._clock())
            self._begin(batch)
        batch.by = subscriber  # its file may have changed since
        batch.add(event, stored)
        if len(self._batches) > MOST_WAITING:
            self._lose()

    def _begin(self, batch: Batch) -> None:
        self._batches.append(batch)
        self._open[batch.subscriber, batch.key] = batch

    def _lose(self) -> None:
        """Drop the oldest of the least severe. What is stored comes again with the next run."""
        least = min(self._batches, key=lambda batch: batch.severity.rank)
        self._forget([least])
        self._lost += least.count

    def _is_due(self, batch: Batch, now: float) -> bool:
        if batch.is_full:
            return True
        told = self._last_delivered.get((batch.subscriber, batch.key))
        quiet = batch.by.quiet if batch.by else 0
        is_quiet = told is not None and told <= now < told + quiet
        return batch.has_waited(now) and not is_quiet

    def _close(self, due: Iterable[Batch], now: float) -> None:
        self._forget(due)
        for batch in due:
            if batch.by and batch.by.quiet:
                self._last_delivered[batch.subscriber, batch.key] = now
        if len(self._last_delivered) > MOST_WAITING:
            # The first to be forgotten are those that were told first.
            self._last_delivered = dict(list(self._last_delivered.items())[-MOST_WAITING:])

    def _forget(self, gone: Iterable[Batch]) -> None:
        numbers = {id(batch) for batch in gone}
        self._batches = [batch for batch in self._batches if id(batch) not in numbers]
        self._open = {k: batch for k, batch in self._open.items() if id(batch) not in numbers}

    def _release(self, is_due: Callable[[ScheduledNotice], bool]) -> None:
        due = [each for each in self._expected if is_due(each)]
        if due:
            self._expected = [each for each in self._expected if each not in due]
            for each in due:
                self._take(each.event, each.id)

    def _summary(self, points: Sequence[InjectionPoint]) -> Iterable[Notice]:
        lost, self._lost = self._lost, 0
        if lost:
            text = f"{lost} events were dropped before they could be told: too many came at once."
            yield Notice(
                subscriber="inbox",
                event_type=EVENTS_LOST,
                severity=Severity.WARNING,
                point=points[0] if points else InjectionPoint.IMMEDIATE,
                text=text,
                user_text=text,
                system_type=NOTICES_LOST,
                metadata={"count": lost},
            )


def _values(event: Event) -> Mapping[str, Any]:
    """As filters, keys and conditions know it."""
    values = as_values(event)
    return {"event": values, "payload": values["payload"]}
