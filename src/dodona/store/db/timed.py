"""A database wrapper that measures the duration of writes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import perf_counter
from typing import TypeVar

from dodona.concurrency.workers import OnOrphaned
from dodona.store.db.database import Database, Owners, StoreOperation, log_orphaned

T = TypeVar("T")


class TimedDatabase:
    """Reports the time from each write request to its commit, in the event loop of the caller."""

    def __init__(self, database: Database, observe: Callable[[float], None]) -> None:
        self._database = database
        self._observe = observe
        self.read = database.read
        self.close = database.close

    @property
    def owners(self) -> Owners:
        return self._database.owners

    async def write(self, operation: StoreOperation[T], *, soft: bool = False) -> T:
        return await self.submit(operation, soft=soft)

    def submit(
        self,
        operation: StoreOperation[T],
        *,
        soft: bool = False,
        on_orphaned: OnOrphaned = log_orphaned,
    ) -> asyncio.Future[T]:
        started = perf_counter()
        future = self._database.submit(operation, soft=soft, on_orphaned=on_orphaned)
        future.add_done_callback(lambda done: self._observe_done(done, started))
        return future

    def _observe_done(self, done: asyncio.Future[T], started: float) -> None:
        if not done.cancelled() and done.exception() is None:
            self._observe(perf_counter() - started)
