"""The event bus: what happens is told to whoever listens, and nobody who tells it ever waits.

What is emitted is told when the callback of the event loop that emitted it is over: so a tick is
over before anybody acts on it. Until then it waits in a buffer, which has an end. Handlers are
called one after the other, by priority. A subscriber reads in its own time: up to a number of
events are kept for it, then it loses the oldest, and is told how many in their place.

Everything here happens in the thread of the event loop; where none runs, events are told at once.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import insort
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, Self, TypeAlias

from dodona.core.errors import BadRequest
from dodona.core.events import PATTERN_HINT, Event, Severity, is_pattern, matches
from dodona.notify.buffer import EVENTS_LOST, Cause, EventBuffer, QueuedEvent

ALL_TYPES: Final = ("*",)

Handler: TypeAlias = Callable[[Event], None]

_log = logging.getLogger(__name__)

_SUBSCRIPTION_CAPACITY = 1000
_BUFFER_CAPACITY = 10_000
_DISPATCH_BATCH_SIZE = 500  # events told before others get their turn on the event loop
# Handlers may emit, and so set off others; past this, they set off each other for ever.
_MAX_CASCADE = 1000
_MAX_CACHED_TYPES = (
    1024  # rules make up types of their own: what is known of them is forgotten then
)


@dataclass(frozen=True, slots=True, eq=False)
class _Listener:
    """One who listens. `user_id` is the only user whose events it hears; None hears them all."""

    handler: Handler
    types: tuple[str, ...]
    user_id: str | None
    priority: int
    first_number: int  # the number of the first event that it may hear

    def matches_type(self, type_: str) -> bool:
        return matches(self.types, type_)


class Subscription:
    """The events of one subscriber, in the order in which they happened.

    It ends when the bus is closed and all that was kept has been read.
    """

    def __init__(self, capacity: int, on_loss: Callable[[], None]) -> None:
        self._capacity = capacity
        self._on_loss = on_loss
        self._events: deque[Event] = deque()
        self._lost_count = 0
        self._ready = asyncio.Event()  # something is there to read, or nothing ever will be
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
    """One for a process.

    `room` is how many events may wait to be told, `kept` how far a subscriber may fall behind.
    """

    def __init__(
        self,
        *,
        buffer_capacity: int = _BUFFER_CAPACITY,
        subscription_capacity: int = _SUBSCRIPTION_CAPACITY,
    ) -> None:
        if subscription_capacity < 1 or buffer_capacity < 1:
            raise ValueError("a bus, and a subscriber, must be able to hold an event")
        self._subscription_capacity = subscription_capacity
        self._listeners: list[_Listener] = []  # by priority
        self._by_type: dict[str, tuple[_Listener, ...]] = {}
        self._subscriptions: set[Subscription] = set()
        self._buffer = EventBuffer(buffer_capacity)
        self._number = 0
        self._subscription_losses = 0  # by subscribers that were too slow, all together
        self._drained: deque[QueuedEvent] = deque()  # out of the buffer: told next
        self._cause: Cause | None = None  # of what handlers are just told
        self._scheduled: asyncio.AbstractEventLoop | None = None
        self._is_closed = False

    def emit(self, event: Event) -> None:
        """Have it told to whoever listens now. Never raises, never waits; events keep their order.

        When too many wait, the oldest of the least severe are dropped, and `events.lost` says how
        many.
        """
        if self._is_closed:
            return
        if self._cause is not None and not _allow_cascade(self._cause):
            return
        self._number += 1
        self._buffer.put(QueuedEvent(self._number, event, self._cause))
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
        """Call a function for each event from now on; call what is returned to stop that.

        Of several, the one with the highest priority is called first, then who came first. Its
        errors are logged, and harm nobody else.
        """
        listener = _Listener(handler, _check_patterns(types), user_id, priority, self._number + 1)
        insort(self._listeners, listener, key=lambda each: -each.priority)
        self._by_type.clear()
        return lambda: self._remove(listener)

    @asynccontextmanager
    async def subscribe(
        self, *, types: tuple[str, ...] = ALL_TYPES, user_id: str | None
    ) -> AsyncGenerator[Subscription]:
        """The events from now on: a user's own, or with None everybody's.

        What belongs to no user is for None only.
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
        """How many events were dropped so far: out of the buffer, before slow subscribers."""
        return {"buffer": self._buffer.dropped, "subscriber": self._subscription_losses}

    def close(self) -> None:
        """Tell what waits, and nothing more. Subscriptions end when what they hold was read."""
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
        """Tell the next ones; are there more?"""
        try:
            for _ in range(limit):
                if not self._drained:
                    self._drained = self._buffer.drain()
                    if not self._drained:
                        return False
                number, event, cause = self._drained.popleft()
                self._cause = cause or Cause(event.type)
                self._dispatch(number, event)
        finally:
            self._cause = None
        return bool(self._drained or self._buffer)

    def _dispatch(self, number: int, event: Event) -> None:
        owner = event.payload.get("user_id")
        for listener in self._listeners_for(event.type):
            is_ours = listener.user_id is None or listener.user_id == owner
            if is_ours and number >= listener.first_number:
                try:
                    listener.handler(event)
                except Exception:  # noqa: BLE001 - a boundary: its bug is nobody else's
                    _log.exception("a handler of %s failed", event.type)

    def _listeners_for(self, type_: str) -> tuple[_Listener, ...]:
        known = self._by_type.get(type_)
        if known is None:
            if len(self._by_type) >= _MAX_CACHED_TYPES:
                self._by_type.clear()
            known = tuple(listener for listener in self._listeners if listener.matches_type(type_))
            self._by_type[type_] = known
        return known

    def _remove(self, listener: _Listener) -> None:
        if listener in self._listeners:
            self._listeners.remove(listener)
            self._by_type.clear()


def _allow_cascade(cause: Cause) -> bool:
    """Count another event that handlers emit; past the most, one line says what is the matter."""
    cause.cascade_count += 1
    if cause.cascade_count == _MAX_CASCADE + 1:
        _log.error("handlers of %s set off too much: the rest is dropped", cause.type)
    return cause.cascade_count <= _MAX_CASCADE


def _check_patterns(types: tuple[str, ...]) -> tuple[str, ...]:
    """The patterns, if they are some: a typo must not listen to nothing, or to everything."""
    for pattern in types:
        if not is_pattern(pattern):
            raise BadRequest(f"{pattern!r:.80} is no pattern of events.", hint=PATTERN_HINT)
    return types
