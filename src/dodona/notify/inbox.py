"""The pending events and notices of one run.

An event is added to a batch of each subscriber that matches it. A batch is delivered at its
injection point, when its window has passed or when it is full.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from dodona.conditions import BoundedValues, Condition, ConditionFailed, compile_condition
from dodona.core.domain.notices import (
    EVENT_VARIABLES,
    Deferral,
    DeferUntil,
    InjectionPoint,
    Notice,
    StoredNotice,
)
from dodona.core.errors import ConfigError
from dodona.core.events import Event, Severity
from dodona.notify.batch import Batch, BatchState
from dodona.notify.bus import EVENTS_LOST
from dodona.notify.registry import SubscriberRegistry
from dodona.notify.subscriber import Subscriber, event_values

MAX_BATCHES: Final = 200
MAX_SCHEDULED: Final = 200
NOTICES_LOST: Final = "notices_lost"
_TOOL_CALL_PREFIX: Final = "tool.call."

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _ScheduledNotice:
    """A stored notice that is not due yet."""

    notice: StoredNotice
    condition: Condition | None = field(default=None, compare=False)

    def is_due_at(self, now: float) -> bool:
        due = self.notice.due
        return due.until is DeferUntil.TIME and (due.at is None or now >= due.at)

    def is_due_with(self, event: Event, values: Mapping[str, Any]) -> bool:
        """Return whether this is the event that the notice waits for."""
        due = self.notice.due
        if due.until is DeferUntil.TOOL:
            return (
                event.type.startswith(_TOOL_CALL_PREFIX) and event.payload.get("tool") == due.tool
            )
        if self.condition is None:
            return False
        try:
            return self.condition.holds(values)
        except ConditionFailed:  # most events lack the fields that the condition uses
            return False


class InboxState(msgspec.Struct, omit_defaults=True):
    """The undelivered notices of a run, as a step stores them for a resumed run."""

    batches: list[BatchState] = []
    scheduled: list[StoredNotice] = []
    delivered: list[tuple[str, str, float]] = []  # subscriber, key and time
    lost_count: int = 0


class Inbox:
    """The inbox of a run, with the subscribers that its user has enabled or disabled.

    Core subscribers cannot be disabled. No method blocks.
    """

    def __init__(
        self,
        subscribers: SubscriberRegistry,
        disabled: Collection[str] = (),
        enabled: Collection[str] = (),
    ) -> None:
        self._subscribers = subscribers
        # Not copied: changes by the user take effect with the next event.
        self._disabled = disabled
        self._enabled = enabled
        self._clock = subscribers.clock
        self._batches: list[Batch] = []  # by start time
        self._open_batches: dict[tuple[str, str], Batch] = {}  # the last of each subscriber and key
        self._scheduled: list[_ScheduledNotice] = []
        # Delivery times of batches with a dedupe window.
        self._last_delivered: dict[tuple[str, str], float] = {}
        self._lost_count = 0

    def receive(self, event: Event) -> None:
        """Add an event to the batches of all subscribers that match it."""
        if self._scheduled:
            values = BoundedValues(_condition_values(event))
            self._release_due(lambda each: each.is_due_with(event, values))
        self._add_event(event, None)

    def schedule(self, notices: Iterable[StoredNotice]) -> None:
        """Schedule stored notices, each delivered when due, as if its event happened then.

        Notices beyond the limit stay in the store for the next run.
        """
        seen_ids = {each.notice.id for each in self._scheduled}
        seen_ids.update(*(batch.state.stored_ids for batch in self._batches))
        for notice in notices:
            if notice.id in seen_ids:
                continue
            seen_ids.add(notice.id)
            if notice.due.until is DeferUntil.SESSION:
                self._add_event(notice.event, notice.id)
            elif len(self._scheduled) < MAX_SCHEDULED:
                self._scheduled.append(_schedule(notice))

    def has_notices(self, *points: InjectionPoint) -> bool:
        """Return whether notices wait for one of these points, even if they are not due yet."""
        accepted = {*points, InjectionPoint.IMMEDIATE}
        return (
            self._lost_count > 0
            or any(batch.point in accepted for batch in self._batches)
            or any(
                subscriber.point in accepted
                for each in self._scheduled
                for subscriber in self._subscribers.for_event_type(each.notice.event.type)
            )
        )

    def drain(self, *points: InjectionPoint, is_last: bool = False) -> list[Notice]:
        """Remove and return the notices that are due at these points, most urgent first.

        Immediate notices are due at any point.
        """
        now = self._clock()
        self._release_due(lambda each: each.is_due_at(now))
        accepted = {*points, InjectionPoint.IMMEDIATE}
        due = [
            b for b in self._batches if b.point in accepted and (is_last or self._is_due(b, now))
        ]
        if due:
            self._close_batches(due, now)
        notices = (batch.build_notice() for batch in sorted(due, key=lambda batch: -batch.urgency))
        return [*self._loss_notices(points), *(notice for notice in notices if notice is not None)]

    def state(self) -> InboxState:
        """Return the state of the inbox for `restore`."""
        return InboxState(
            [batch.state for batch in self._batches],
            [each.notice for each in self._scheduled],
            [(*key, at) for key, at in self._last_delivered.items()],
            self._lost_count,
        )

    def restore(self, state: InboxState) -> None:
        """Replace the state of the inbox."""
        self._batches, self._open_batches = [], {}
        for batch in state.batches:
            self._add_batch(Batch(self._subscribers.get(batch.subscriber_id), batch))
        self._scheduled = [_schedule(notice) for notice in state.scheduled]
        self._last_delivered = {(name, key): at for name, key, at in state.delivered}
        self._lost_count = state.lost_count

    def _add_event(self, event: Event, stored_id: int | None) -> None:
        subscribers = self._subscribers.for_event_type(event.type)
        if not subscribers:
            return
        values = _condition_values(event)
        bounded = BoundedValues(values)  # shared by all conditions
        for subscriber in subscribers:
            if self._is_enabled(subscriber) and subscriber.matches_event(event, bounded):
                self._add_to_batch(subscriber, subscriber.dedupe_key(values), event, stored_id)

    def _is_enabled(self, subscriber: Subscriber) -> bool:
        if subscriber.section.core:
            return True
        is_on = subscriber.section.enabled or subscriber.id in self._enabled
        return is_on and subscriber.id not in self._disabled

    def _add_to_batch(
        self, subscriber: Subscriber, key: str, event: Event, stored_id: int | None
    ) -> None:
        batch = self._open_batches.get((subscriber.id, key))
        if batch is None or batch.is_full:
            batch = Batch(subscriber, BatchState(subscriber.id, key, self._clock()))
            self._add_batch(batch)
        batch.subscriber = subscriber  # its file may have changed since
        batch.add(event, stored_id)
        if len(self._batches) > MAX_BATCHES:
            self._drop_least_severe()

    def _add_batch(self, batch: Batch) -> None:
        self._batches.append(batch)
        self._open_batches[batch.state.subscriber_id, batch.state.key] = batch

    def _drop_least_severe(self) -> None:
        """Drop the oldest of the least severe batches. Stored notices return in the next run."""
        least = min(self._batches, key=lambda batch: batch.severity.rank)
        self._remove_batches([least])
        self._lost_count += least.state.count

    def _is_due(self, batch: Batch, now: float) -> bool:
        if batch.is_full:
            return True
        delivered_at = self._last_delivered.get((batch.state.subscriber_id, batch.state.key))
        quiet_seconds = batch.subscriber.dedupe_seconds if batch.subscriber else 0
        is_quiet = delivered_at is not None and delivered_at <= now < delivered_at + quiet_seconds
        return batch.is_window_over(now) and not is_quiet

    def _close_batches(self, due: Iterable[Batch], now: float) -> None:
        self._remove_batches(due)
        for batch in due:
            if batch.subscriber and batch.subscriber.dedupe_seconds:
                self._last_delivered[batch.state.subscriber_id, batch.state.key] = now
        if len(self._last_delivered) > MAX_BATCHES:
            # Forget the oldest deliveries first.
            self._last_delivered = dict(list(self._last_delivered.items())[-MAX_BATCHES:])

    def _remove_batches(self, batches: Iterable[Batch]) -> None:
        numbers = {id(batch) for batch in batches}
        self._batches = [batch for batch in self._batches if id(batch) not in numbers]
        self._open_batches = {
            k: batch for k, batch in self._open_batches.items() if id(batch) not in numbers
        }

    def _release_due(self, is_due: Callable[[_ScheduledNotice], bool]) -> None:
        due = [each for each in self._scheduled if is_due(each)]
        if due:
            self._scheduled = [each for each in self._scheduled if each not in due]
            for each in due:
                self._add_event(each.notice.event, each.notice.id)

    def _loss_notices(self, points: Sequence[InjectionPoint]) -> Iterable[Notice]:
        lost, self._lost_count = self._lost_count, 0
        if lost:
            text = f"{lost} events were dropped because too many arrived at once."
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


def _condition_values(event: Event) -> Mapping[str, Any]:
    """Return the variables for filters, keys and conditions."""
    values = event_values(event)
    return {"event": values, "payload": values["payload"]}


def _schedule(notice: StoredNotice) -> _ScheduledNotice:
    """Build a scheduled notice; its condition is compiled once."""
    due = notice.due
    if due.until is not DeferUntil.CONDITION:
        return _ScheduledNotice(notice)
    try:
        return _ScheduledNotice(notice, compile_condition(due.condition, names=EVENT_VARIABLES))
    except ConfigError as error:
        # The condition was valid in another version. Delivering early beats never delivering.
        text = "notice %d has an invalid condition and is delivered now: %s"
        _log.warning(text, notice.id, error)
        return _ScheduledNotice(replace(notice, due=Deferral(DeferUntil.TIME)))
