"""Calls that wait for budget which other calls in progress have reserved.

They are served in the order of arrival, per budget. A settlement in this process wakes the first
one; the settlements of other processes are found by trying again at an interval.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Generator
from contextlib import contextmanager, suppress
from time import monotonic
from typing import Final, TypeVar
from weakref import WeakValueDictionary

from dodona.concurrency.workers import post_to_loop
from dodona.core.errors import BudgetExceeded

T = TypeVar("T")

RETRY_INTERVAL: Final = 0.5  # seconds


class ReservationQueue:
    """The calls of this process that wait. `notify` may be called in any thread."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._waiting: Counter[str] = Counter()  # calls by the budget that blocks them
        self._wakers: set[Callable[[], None]] = set()

    def notify(self) -> None:
        """Wake the first call of each budget: a reservation was settled."""
        for wake in tuple(self._wakers):
            wake()

    async def reserve(
        self, attempt: Callable[[], Awaitable[T]], *, scopes: Collection[str], seconds: float
    ) -> T:
        """Return the result of `attempt`; repeat it while only reservations block it.

        Raises its BudgetExceeded if that does not change in time, or if the budget is used up.
        Calls with a budget that others wait for, which are `scopes`, are not served before them.
        """
        deadline = monotonic() + seconds
        blocking = next((scope for scope in scopes if self._waiting[scope]), None)
        if blocking is None or seconds <= 0:
            try:
                return await attempt()
            except BudgetExceeded as error:
                if error.retry_after is None or seconds <= 0:
                    raise
                blocking = str(error.details["scope"])
        self._waiting[blocking] += 1
        try:
            return await self._reserve_in_turn(blocking, attempt, deadline)
        finally:
            self._waiting[blocking] -= 1
            self._waiting += Counter()  # drop those of zero

    async def _reserve_in_turn(
        self, scope: str, attempt: Callable[[], Awaitable[T]], deadline: float
    ) -> T:
        lock = self._locks.get(scope)
        if lock is None:
            lock = self._locks[scope] = asyncio.Lock()
        try:
            async with asyncio.timeout(deadline - monotonic()):
                await lock.acquire()
        except TimeoutError:
            return await attempt()  # its error says what blocks the budget now
        try:
            return await self._repeat(attempt, deadline)
        finally:
            lock.release()

    async def _repeat(self, attempt: Callable[[], Awaitable[T]], deadline: float) -> T:
        with self._listen() as settled:
            while True:
                settled.clear()
                try:
                    return await attempt()
                except BudgetExceeded as error:
                    seconds = min(deadline - monotonic(), RETRY_INTERVAL)
                    if error.retry_after is None or seconds <= 0:
                        raise
                # Only the wait is limited: a cancelled attempt may have reserved the budget.
                with suppress(TimeoutError):
                    async with asyncio.timeout(seconds):
                        await settled.wait()

    @contextmanager
    def _listen(self) -> Generator[asyncio.Event]:
        """Yield an event that settlements set."""
        settled, loop = asyncio.Event(), asyncio.get_running_loop()

        def wake() -> None:
            post_to_loop(loop, settled.set)

        self._wakers.add(wake)
        try:
            yield settled
        finally:
            self._wakers.discard(wake)
