"""The interface that SQLite and PostgreSQL share: operations that run inside a transaction.

An operation is a plain function of a transaction. It is atomic, may be retried by the database,
and must have no effects outside the transaction.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any, Protocol, TypeAlias, TypeVar

from dodona.concurrency.workers import OnOrphaned
from dodona.store.db.statements import Statement

T = TypeVar("T")
Row: TypeAlias = tuple[Any, ...]

_log = logging.getLogger(__name__)


class Transaction(Protocol):
    """The statements that an operation may run; they commit together or not at all."""

    def execute(self, statement: Statement, **values: Any) -> int:
        """Execute a statement; return the number of affected rows."""
        ...

    def fetch_one(self, statement: Statement, **values: Any) -> Row | None:
        """Return the first row, if any."""
        ...

    def fetch_all(self, statement: Statement, **values: Any) -> list[Row]: ...

    def insert(self, statement: Statement, **values: Any) -> int:
        """Execute an `insert_returning_id`; return the id of the new row."""
        ...

    def execute_many(self, statement: Statement, rows: Sequence[dict[str, Any]]) -> None:
        """Execute a statement once for each row, in one batch."""
        ...

    def lock(self, statement: Statement, **values: Any) -> None:
        """Lock rows until the transaction ends. With a single writer, this does nothing."""
        ...

    def lock_name(self, name: str) -> None:
        """Lock a name until the transaction ends, for something that may have no row yet."""
        ...


StoreOperation: TypeAlias = Callable[[Transaction], T]


class Owners(Protocol):
    """Liveness of processes: each holds a lock in the database for as long as it lives."""

    @property
    def current(self) -> str:
        """The name of this process, which is never reused."""
        ...

    def is_alive(self, owner: str, tx: Transaction) -> bool: ...


class Database(Protocol):
    """An open and migrated database."""

    @property
    def owners(self) -> Owners: ...

    async def read(self, operation: StoreOperation[T]) -> T:
        """Run a read-only operation on one consistent snapshot."""
        ...

    async def write(self, operation: StoreOperation[T], *, soft: bool = False) -> T:
        """Run an operation; it is durable when this returns.

        A soft write survives a crash of the process immediately, and a power failure soon after.
        Cancelling the caller does not cancel the write.
        """
        ...

    def submit(
        self, operation: StoreOperation[T], *, soft: bool = False, on_orphaned: OnOrphaned = ...
    ) -> asyncio.Future[T]:
        """Like `write`. If the future is cancelled, `on_orphaned` gets the outcome."""
        ...

    async def close(self) -> None: ...


def log_orphaned(_: Any, error: BaseException | None) -> None:
    """Log the failure of a write whose caller no longer waits."""
    if error is not None:
        _log.error("a write whose caller was cancelled has failed: %s", error)


class WatchedDatabase:
    """Reports the duration and the error of each write, in the event loop of the caller."""

    def __init__(
        self, database: Database, observe: Callable[[float, BaseException | None], None]
    ) -> None:
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
        if not done.cancelled():
            self._observe(perf_counter() - started, done.exception())
