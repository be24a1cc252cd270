"""The port that SQLite and PostgreSQL share: operations run inside a transaction.

An operation is a plain function of a transaction. It does all its work or none, may be run
again when the database asks for that, and does nothing but talk to the transaction.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

from dodona.concurrency.workers import OnOrphaned
from dodona.store.db.statements import Statement

T = TypeVar("T")
Row: TypeAlias = tuple[Any, ...]

_log = logging.getLogger(__name__)


class Transaction(Protocol):
    """What an operation may do; all of it counts, or nothing does."""

    def execute(self, statement: Statement, **values: Any) -> int:
        """Execute it; how many rows it touched."""
        ...

    def fetch_one(self, statement: Statement, **values: Any) -> Row | None:
        """The first row, if there is one."""
        ...

    def fetch_all(self, statement: Statement, **values: Any) -> list[Row]: ...

    def insert(self, statement: Statement, **values: Any) -> int:
        """Execute an `addition`; the id of the new row."""
        ...

    def execute_many(self, statement: Statement, rows: Sequence[dict[str, Any]]) -> None:
        """Execute it once for each row, in one go."""
        ...

    def lock(self, statement: Statement, **values: Any) -> None:
        """Lock rows until the transaction ends. Where there is one writer, it has them all."""
        ...

    def lock_name(self, name: str) -> None:
        """Lock a name, of something that there may be no row for yet, until the end."""
        ...


Operation: TypeAlias = Callable[[Transaction], T]


class Owners(Protocol):
    """Who is alive: a process holds a lock of the database's own for as long as it lives."""

    @property
    def current(self) -> str:
        """This process, by a name that is never used again."""
        ...

    def is_alive(self, owner: str, tx: Transaction) -> bool: ...


class Database(Protocol):
    """A database that is open, migrated and ours to use."""

    @property
    def owners(self) -> Owners: ...

    async def read(self, operation: Operation[T]) -> T:
        """Run an operation that only reads, on one consistent view."""
        ...

    async def write(self, operation: Operation[T], *, soft: bool = False) -> T:
        """Run an operation; it is durable when this returns.

        A soft one outlives the process by then, and the power soon after. A caller that is
        cancelled stops waiting; what it asked for is done all the same.
        """
        ...

    def submit(
        self, operation: Operation[T], *, soft: bool = False, on_orphaned: OnOrphaned = ...
    ) -> asyncio.Future[T]:
        """The same. Who cancels the future does not wait; `lost` is told how it ended."""
        ...

    async def close(self) -> None: ...


def log_orphaned(_: Any, error: BaseException | None) -> None:
    """Nobody waits for it any more, so this is the last chance to say that it failed."""
    if error is not None:
        _log.error("a write whose caller was cancelled has failed: %s", error)
