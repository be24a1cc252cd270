"""The port that SQLite and PostgreSQL share: operations run inside a transaction.

An operation is a plain function of a transaction. It does all its work or none, may be run
again when the database asks for that, and does nothing but talk to the transaction.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias, TypeVar

from dodona.store.statements import Statement

T = TypeVar("T")
Row: TypeAlias = tuple[Any, ...]

_log = logging.getLogger(__name__)


class Transaction(Protocol):
    """What an operation may do; all of it counts, or nothing does."""

    def run(self, statement: Statement, **values: Any) -> int:
        """Execute it; how many rows it touched."""
        ...

    def row(self, statement: Statement, **values: Any) -> Row | None:
        """The first row, if there is one."""
        ...

    def rows(self, statement: Statement, **values: Any) -> list[Row]: ...


Operation: TypeAlias = Callable[[Transaction], T]


class Owners(Protocol):
    """Who is alive: a process holds a lock of the database's own for as long as it lives."""

    @property
    def me(self) -> str:
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

    async def write(self, operation: Operation[T]) -> T:
        """Run an operation; it is durable when this returns.

        A caller that is cancelled stops waiting; what it asked for is done all the same.
        """
        ...

    async def close(self) -> None: ...


async def shielded(future: asyncio.Future[T]) -> T:
    """Wait for a write that goes on, whoever stops waiting for it."""
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        future.add_done_callback(_tell_failure)
        raise


def _tell_failure(future: asyncio.Future[Any]) -> None:
    # Nobody waits for it any more, so this is the last chance to say that it failed.
    if not future.cancelled() and (error := future.exception()) is not None:
        _log.error("a write whose caller was cancelled has failed: %s", error)
