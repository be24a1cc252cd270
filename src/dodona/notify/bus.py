"""The event bus: what happens is told to whoever listens, and nobody who tells it ever waits.

A handler is called at once, within `emit`. A subscriber reads in its own time: up to a number of
events are kept for it, then it loses the oldest, and is told how many in their place.

Patterns are a type (`tool.call.success`), all below a prefix (`tool.*`), or everything (`*`).
Everything here happens in the thread of the event loop.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, Self, TypeAlias

from dodona.core.errors import BadRequest
from dodona.core.events import Event, Severity

EVENTS_LOST: Final = "events.lost"
EVERYTHING: Final = ("*",)

Handler: TypeAlias = Callable[[Event], None]

_log = logging.getLogger(__name__)

_KEPT = 1000
# Handlers may emit, and so set off others; past this they only set off each other, for ever.
_MOST_SET_OFF = 1000
_MOST_TYPES = 1024  # rules make up types of their own: what is known of them is forgotten then

_PATTERN = re.compile(r"\*|[^.*\s]+(\.[^.*\s]+)*(\.\*)?")


@dataclass(frozen=True, slots=True, eq=False)
class _Listener:
    """One who listens. `user_id` is the only user whose events it hears; None hears them all."""

    call: Handler
    types: tuple[str, ...]
    user_id: str | None

    def wants(self, type_: str) -> bool:
        return any(_matches(pattern, type_) for pattern in self.types)

    def may_hear(self, event: Event) -> bool:
        return self.user_id is None or event.payload.get("user_id") == self.user_id


class Subscription:
    """The events of one subscriber, in the order in which they happened.

    It ends when the bus is closed and all that was kept has been read.
    """

    def __init__(self, kept: int) -> None:
        self._kept = kept
        self._events: deque[Event] = deque()
        self._lost = 0
        self._stirred = asyncio.Event()  # something is there to read, or nothing ever will be
        self._is_closed = False

    def put(self, event: Event) -> None:
        if len(self._events) == self._kept:
            self._events.popleft()
            self._lost += 1
        self._events.append(event)
        self._stirred.set()

    def close(self) -> None:
        self._is_closed = True
        self._stirred.set()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        while not self._events:
            if self._is_closed:
                raise StopAsyncIteration
            self._stirred.clear()
            await self._stirred.wait()
        if self._lost:
            lost, self._lost = self._lost, 0
            return Event(EVENTS_LOST, "notify.bus", Severity.WARNING, {"count": lost})
        return self._events.popleft()


class Bus:
    """One for a process. `kept` is how many events a slow subscriber may fall behind."""

    def __init__(self, *, kept: int = _KEPT) -> None:
        if kept < 1:
            raise ValueError("a subscriber must be able to hold an event")
        self._kept = kept
        self._listeners: list[_Listener] = []
        self._by_type: dict[str, tuple[_Listener, ...]] = {}
        self._subscriptions: set[Subscription] = set()
        self._waiting: deque[Event] = deque()  # emitted by handlers: told after what set them off
        self._set_off = 0
        self._is_telling = False
        self._is_closed = False

    def emit(self, event: Event) -> None:
        """Tell whoever listens. Never raises and never waits; events keep their order."""
        if self._is_closed:
            return
        if self._is_telling:
            self._tell_later(event)
            return
        self._is_telling, self._set_off = True, 0
        self._waiting.append(event)
        try:
            while self._waiting:
                self._tell(self._waiting.popleft())
        finally:
            self._is_telling = False
            self._waiting.clear()
        if self._set_off > _MOST_SET_OFF:
            dropped = self._set_off - _MOST_SET_OFF
            _log.error("handlers of %s set off too much: %d events dropped", event.type, dropped)

    def handle(
        self, handler: Handler, *, types: tuple[str, ...] = EVERYTHING, user_id: str | None
    ) -> Callable[[], None]:
        """Call a function for each event; call what is returned to stop that.

        Its errors are logged, and harm nobody else.
        """
        listener = _Listener(handler, _checked(types), user_id)
        self._listeners.append(listener)
        self._by_type.clear()
        return lambda: self._remove(listener)

    @asynccontextmanager
    async def subscribe(
        self, *, types: tuple[str, ...] = EVERYTHING, user_id: str | None
    ) -> AsyncGenerator[Subscription]:
        """The events from now on: a user's own, or with None everybody's.

        What belongs to no user is for None only.
        """
        subscription = Subscription(self._kept)
        stop = self.handle(subscription.put, types=types, user_id=user_id)
        self._subscriptions.add(subscription)
        if self._is_closed:
            subscription.close()
        try:
            yield subscription
        finally:
            self._subscriptions.discard(subscription)
            stop()

    def close(self) -> None:
        """Tell nothing more. Subscriptions end when what they hold was read."""
        self._is_closed = True
        for subscription in self._subscriptions:
            subscription.close()

    def _tell(self, event: Event) -> None:
        for listener in self._listening(event.type):
            if listener.may_hear(event):
                try:
                    listener.call(event)
                except Exception:  # noqa: BLE001 - a boundary: its bug is nobody else's
                    _log.exception("a handler of %s failed", event.type)

    def _listening(self, type_: str) -> tuple[_Listener, ...]:
        known = self._by_type.get(type_)
        if known is None:
            if len(self._by_type) >= _MOST_TYPES:
                self._by_type.clear()
            known = tuple(listener for listener in self._listeners if listener.wants(type_))
            self._by_type[type_] = known
        return known

    def _tell_later(self, event: Event) -> None:
        self._set_off += 1
        if self._set_off <= _MOST_SET_OFF:
            self._waiting.append(event)

    def _remove(self, listener: _Listener) -> None:
        if listener in self._listeners:
            self._listeners.remove(listener)
            self._by_type.clear()


def _matches(pattern: str, type_: str) -> bool:
    if pattern.endswith("*"):
        return type_.startswith(pattern[:-1])
    return type_ == pattern


def _checked(types: tuple[str, ...]) -> tuple[str, ...]:
    """The patterns, if they are some: a typo must not listen to nothing, or to everything."""
    for pattern in types:
        if not _PATTERN.fullmatch(pattern):
            raise BadRequest(
                f"{pattern!r:.80} is no pattern of events.",
                hint="Write a type like tool.call.success, a prefix like tool.*, or *.",
            )
    return types
