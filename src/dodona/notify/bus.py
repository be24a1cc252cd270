"""The event bus: dispatches events to handlers and subscribers. Emitting never blocks.

An event is dispatched after the event loop callback that emitted it has returned, so a tick is
complete before a handler reacts to it. Until then it waits in a bounded buffer. Handlers are
called one after the other, by priority. A subscriber reads at its own pace from a bounded queue;
when the queue is full it loses the oldest events and receives an `events.lost` event instead.

Everything runs in the thread of the event loop; without a running loop, events are dispatched
immediately.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import insort
from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import chain
from sys import maxsize
from typing import Final, NamedTuple, Self, TypeAlias

from dodona.core.errors import BadRequest
from dodona.core.events import PATTERN_HINT, Event, Severity, is_pattern, matches

ALL_TYPES: Final = ("*",)
EVENTS_LOST: Final = "events.lost"

Handler: TypeAlias = Callable[[Event], None]

_log = logging.getLogger(__name__)

_SUBSCRIPTION_CAPACITY = 1000
_BUFFER_CAPACITY = 10_000
_DISPATCH_BATCH_SIZE = 500  # events dispatched before other callbacks of the event loop run
# Handlers may emit events that trigger other handlers; beyond this they form an endless loop.
_MAX_CASCADE = 1000
# Rules can define new event types, so the cache is cleared when it is full.
_MAX_CACHED_TYPES = 1024


@dataclass(slots=True)
class _Cause:
    """The type of an external event, and the number of events that handlers emitted for it."""

    type: str
    cascade_count: int = 0


class _QueuedEvent(NamedTuple):
    """An event in the buffer: `number` orders all events, `cause` is None for external events."""

    number: int
    event: Event
    cause: _Cause | None


class _EventBuffer:
    """When full, drops the oldest of the least severe events and reports how many were lost."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._size = 0
        self._by_severity: tuple[deque[_QueuedEvent], ...] = tuple(
            deque[_QueuedEvent]() for _ in Severity
        )
        self._lost_by_user: Counter[str | None] = Counter()
        self.dropped = 0  # in total

    def __bool__(self) -> bool:
        return self._size > 0

    def put(self, queued: _QueuedEvent) -> None:
        self._by_severity[queued.event.severity.rank].append(queued)
        if self._size < self._capacity:
            self._size += 1
            return
        dropped = next(queue for queue in self._by_severity if queue).popleft()
        self._lost_by_user[dropped.event.payload.get("user_id")] += 1
        self.dropped += 1

    def drain(self) -> deque[_QueuedEvent]:
        """Remove and return all events in order, preceded by one `events.lost` per user."""
        drained = deque(self._loss_events())
        # Each queue is already sorted and numbers are unique, so this only merges them.
        drained.extend(sorted(chain.from_iterable(self._by_severity)))
        for queue in self._by_severity:
            queue.clear()
        self._size = 0
        return drained

    def _loss_events(self) -> Iterable[_QueuedEvent]:
        lost, self._lost_by_user = self._lost_by_user, Counter()
        for user_id, count in lost.items():
            owner = {} if user_id is None else {"user_id": user_id}
            event = Event(EVENTS_LOST, "notify.bus", Severity.WARNING, {"count": count, **owner})
            yield _QueuedEvent(maxsize, event, None)  # for all current listeners


@dataclass(frozen=True, slots=True, eq=False)
class _Listener:
    """A handler and its filter. It receives the events of `user_id` only, or all for None."""

    handler: Handler
    types: tuple[str, ...]
    user_id: str | None
    priority: int
    first_number: int  # the number of the first event that it may receive

    def matches_type(self, type_: str) -> bool:
        return matches(self.types, type_)


class Subscription:
    """The events of one subscriber, in order.

    The iteration ends when the bus is closed and all queued events have been read.
    """

    def __init__(self, capacity: int, on_loss: Callable[[], None]) -> None:
        self._capacity = capacity
        self._on_loss = on_loss
        self._events: deque[Event] = deque()
        self._lost_count = 0
        self._ready = asyncio.Event()  # set if there are events to read, or the bus is closed
        self._is_closed = False

    def put(self, event: Event) -> None:
        if len(self._events) == self._capacity:
            self._events.popleft()
            self._lost_count += 1
            self._on_loss()
        self._events.append(event)
        self._ready.set()

    def close(self) -> None:
        self._is_closed = True
        self._ready.set()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        while not self._events:
            if self._is_closed:
                raise StopAsyncIteration
            self._ready.clear()
            await self._ready.wait()
        if self._lost_count:
            lost, self._lost_count = self._lost_count, 0
            return Event(EVENTS_LOST, "notify.bus", Severity.WARNING, {"count": lost})
        return self._events.popleft()


class Bus:
    """The event bus of a process.

    `buffer_capacity` limits the events that wait for dispatch, `subscription_capacity` the events
    that wait for one subscriber.
    """

    def __init__(
        self,
        *,
        buffer_capacity: int = _BUFFER_CAPACITY,
        subscription_capacity: int = _SUBSCRIPTION_CAPACITY,
    ) -> None:
        if subscription_capacity < 1 or buffer_capacity < 1:
            raise ValueError("the capacities of a bus must be at least 1")
        self._subscription_capacity = subscription_capacity
        self._listeners: list[_Listener] = []  # by priority
        self._by_type: dict[str, tuple[_Listener, ...]] = {}
        self._subscriptions: set[Subscription] = set()
        self._buffer = _EventBuffer(buffer_capacity)
        self._number = 0
        self._subscription_losses = 0  # events lost by all slow subscribers together
        self._drained: deque[_QueuedEvent] = deque()  # from the buffer, dispatched next
        self._cause: _Cause | None = None  # of the event being dispatched
        self._scheduled: asyncio.AbstractEventLoop | None = None
        self._is_closed = False

    def emit(self, event: Event) -> None:
        """Queue an event for all current listeners. Never raises, never blocks; keeps the order.

        If the buffer is full, the oldest of the least severe events are dropped, and
        `events.lost` reports how many.
        """
        if self._is_closed:
            return
        if self._cause is not None and not _allow_cascade(self._cause):
            return
        self._number += 1
        self._buffer.put(_QueuedEvent(self._number, event, self._cause))
        if self._cause is None:
            self._dispatch_soon()

    def add_handler(
        self,
        handler: Handler,
        *,
        types: tuple[str, ...] = ALL_TYPES,
        user_id: str | None,
        priority: int = 0,
    ) -> Callable[[], None]:
        """Call a function for each event from now on. Return a function that removes it.

        Handlers are called by descending priority, then in order of registration. Exceptions are
        logged and do not affect other handlers.
        """
        listener = _Listener(handler, _check_patterns(types), user_id, priority, self._number + 1)
        insort(self._listeners, listener, key=lambda each: -each.priority)
        self._by_type.clear()
        return lambda: self._remove(listener)

    @asynccontextmanager
    async def subscribe(
        self, *, types: tuple[str, ...] = ALL_TYPES, user_id: str | None
    ) -> AsyncGenerator[Subscription]:
        """Subscribe to the events of a user from now on, or of all users for None.

        Events without a user are delivered only to subscriptions for None.
        """
        subscription = Subscription(self._subscription_capacity, self._count_loss)
        stop = self.add_handler(subscription.put, types=types, user_id=user_id)
        self._subscriptions.add(subscription)
        if self._is_closed:
            subscription.close()
        try:
            yield subscription
        finally:
            self._subscriptions.discard(subscription)
            stop()

    @property
    def dropped(self) -> Mapping[str, int]:
        """The number of events dropped so far: from the buffer, and by slow subscribers."""
        return {"buffer": self._buffer.dropped, "subscriber": self._subscription_losses}

    def close(self) -> None:
        """Dispatch waiting events and stop. Subscriptions end when their queue has been read."""
        if self._cause is None:
            self._dispatch_all()
        self._is_closed = True
        for subscription in self._subscriptions:
            subscription.close()

    def _count_loss(self) -> None:
        self._subscription_losses += 1

    def _dispatch_soon(self) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self._dispatch_all()
            return
        if self._scheduled is not loop:
            self._scheduled = loop
            loop.call_soon(self._dispatch_some)

    def _dispatch_some(self) -> None:
        self._scheduled = None
        if self._dispatch_up_to(_DISPATCH_BATCH_SIZE):
            self._dispatch_soon()

    def _dispatch_all(self) -> None:
        while self._dispatch_up_to(_DISPATCH_BATCH_SIZE):
            pass

    def _dispatch_up_to(self, limit: int) -> bool:
        """Dispatch the next events. Return whether there are more."""
        try:
            for _ in range(limit):
                if not self._drained:
                    self._drained = self._buffer.drain()
                    if not self._drained:
                        return False
                number, event, cause = self._drained.popleft()
                self._cause = cause or _Cause(event.type)
                self._dispatch(number, event)
        finally:
            self._cause = None
        return bool(self._drained or self._buffer)

    def _dispatch(self, number: int, event: Event) -> None:
        owner = event.payload.get("user_id")
        for listener in self._listeners_for(event.type):
            is_visible = listener.user_id is None or listener.user_id == owner
            if is_visible and number >= listener.first_number:
                try:
                    listener.handler(event)
                except Exception:  # noqa: BLE001 - a boundary: other handlers must still run
                    _log.exception("a handler of %s failed", event.type)

    def _listeners_for(self, type_: str) -> tuple[_Listener, ...]:
        cached = self._by_type.get(type_)
        if cached is None:
            if len(self._by_type) >= _MAX_CACHED_TYPES:
                self._by_type.clear()
            cached = tuple(listener for listener in self._listeners if listener.matches_type(type_))
            self._by_type[type_] = cached
        return cached

    def _remove(self, listener: _Listener) -> None:
        if listener in self._listeners:
            self._listeners.remove(listener)
            self._by_type.clear()


def _allow_cascade(cause: _Cause) -> bool:
    """Count an event emitted by a handler. Above the limit, log once and return False."""
    cause.cascade_count += 1
    if cause.cascade_count == _MAX_CASCADE + 1:
        _log.error("handlers of %s emit too many events: the rest is dropped", cause.type)
    return cause.cascade_count <= _MAX_CASCADE


def _check_patterns(types: tuple[str, ...]) -> tuple[str, ...]:
    """Return the patterns. Raise BadRequest for an invalid one, which would match nothing."""
    for pattern in types:
        if not is_pattern(pattern):
            raise BadRequest(f"{pattern!r:.80} is not a valid event pattern.", hint=PATTERN_HINT)
    return types
