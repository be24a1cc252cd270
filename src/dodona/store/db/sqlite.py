"""The store in one file: WAL, one writer thread, a few readers beside it."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeVar

from dodona.concurrency.workers import OnOrphaned, WorkerThreads
from dodona.core.errors import StoreError
from dodona.store.db.database import Operation, Row, log_orphaned
from dodona.store.db.owners import FileOwners
from dodona.store.db.statements import SQLITE, Statement
from dodona.store.db.writer import SYNC_FULL, SYNC_NORMAL, Writer

T = TypeVar("T")

APPLICATION_ID: Final = 0x0D0D0A1  # in the file's header: this is ours
_READER_COUNT = 4
_BUSY_TIMEOUT_SECONDS = 30.0  # seconds


class SqliteTransaction:
    """Runs statements on a connection; who owns the transaction is not its business."""

    __slots__ = ("_execute", "_execute_all")

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._execute = connection.execute
        self._execute_all = connection.executemany

    def _execute_statement(self, statement: Statement, values: dict[str, Any]) -> sqlite3.Cursor:
        sql = statement.sql(SQLITE)
        return self._execute(sql, statement.to_positional(statement.prepare(values)))

    def execute(self, statement: Statement, **values: Any) -> int:
        return self._execute_statement(statement, values).rowcount

    def fetch_one(self, statement: Statement, **values: Any) -> Row | None:
        rows = self._execute_statement(statement, values).fetchall()
        return rows[0] if rows else None

    def fetch_all(self, statement: Statement, **values: Any) -> list[Row]:
        return self._execute_statement(statement, values).fetchall()

    def insert(self, statement: Statement, **values: Any) -> int:
        added = self._execute_statement(statement, values).lastrowid
        assert added is not None
        return added

    def execute_many(self, statement: Statement, rows: Sequence[dict[str, Any]]) -> None:
        sql = statement.sql(SQLITE)
        ordered, values = statement.to_positional, statement.prepare
        self._execute_all(sql, [ordered(values(row)) for row in rows])

    def lock(self, statement: Statement, **values: Any) -> None:
        """The writer has the whole file."""

    def lock_name(self, name: str) -> None:
        """The writer has the whole file."""


class SqliteDatabase:
    """An open file. Made by `opening`, which has looked at it and migrated it."""

    def __init__(self, path: Path, *, durability: str) -> None:
        self._path = path
        self._is_closed = False
        connection = retry_while_busy(lambda: connect_writer(path, durability=durability))
        self._owners = FileOwners(Path(f"{path}-owners"))
        self._writer = Writer(
            connection,
            transaction=SqliteTransaction,
            is_durable=durability == "full",
            translate=self._to_store_error,
        )
        self._idle_readers: SimpleQueue[sqlite3.Connection] = SimpleQueue()
        self._readers = WorkerThreads(_READER_COUNT, "dodona-store-reader")

    @property
    def owners(self) -> FileOwners:
        return self._owners

    async def write(self, operation: Operation[T], *, soft: bool = False) -> T:
        return await self._writer.submit(operation, soft=soft)

    def submit(
        self, operation: Operation[T], *, soft: bool = False, on_orphaned: OnOrphaned = log_orphaned
    ) -> asyncio.Future[T]:
        return self._writer.submit(operation, soft=soft, on_orphaned=on_orphaned)

    async def read(self, operation: Operation[T]) -> T:
        return await self._readers.submit(lambda: self._read(operation))

    def _read(self, operation: Operation[T]) -> T:
        try:
            connection = self._reader_connection()
            try:
                connection.execute("BEGIN")
                return operation(SqliteTransaction(connection))
            finally:
                connection.rollback()
                self._idle_readers.put(connection)
        except sqlite3.Error as error:
            raise self._to_store_error(error) from error

    def _reader_connection(self) -> sqlite3.Connection:
        """As many connections as there are threads that ever read at once."""
        try:
            return self._idle_readers.get_nowait()
        except Empty:
            return connect_reader(self._path)

    async def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._readers.close()
        while not self._idle_readers.empty():
            self._idle_readers.get().close()
        # Last, so that closing the writer's connection folds the log into the file.
        self._writer.close()
        self._owners.close()

    def _to_store_error(self, error: sqlite3.Error) -> StoreError:
        return to_store_error(error, self._path, lock_holders=self._owners.describe_others)


def retry_while_busy(work: Callable[[], T]) -> T:
    """Do it, again while another process is in the way: SQLite itself does not always wait."""
    patience = time.monotonic() + _BUSY_TIMEOUT_SECONDS
    while True:
        try:
            return work()
        except sqlite3.OperationalError as error:
            busy = error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
            if not busy or time.monotonic() > patience:
                raise
        time.sleep(0.005)


def connect_writer(path: Path, *, durability: str) -> sqlite3.Connection:
    """A connection that writes.

    It waits for those who are just closing, and then for no lock: the writer has its own way.
    """
    connection = sqlite3.connect(
        path, timeout=30, isolation_level=None, check_same_thread=False, cached_statements=256
    )
    connection.execute(SYNC_FULL if durability == "full" else SYNC_NORMAL)
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA secure_delete = ON")  # what is deleted is gone from the file too
    connection.execute("PRAGMA journal_size_limit = 67108864")
    connection.execute("PRAGMA busy_timeout = 0")
    return connection


def connect_reader(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(
        path, timeout=10, isolation_level=None, check_same_thread=False, cached_statements=256
    )
    connection.execute("PRAGMA query_only = ON")
    return connection


def create_file(path: Path) -> None:
    """Make the file, for its owner only: what is in it was said in confidence."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    except OSError as error:
        raise StoreError(
            f"cannot make the store {path}: {error.strerror}.",
            hint="Choose another place with [store] url, or DODONA_STORE__URL.",
        ) from error


def to_store_error(
    error: sqlite3.Error, path: Path, *, lock_holders: Callable[[], list[str]] = list
) -> StoreError:
    """What SQLite's error means for whoever runs Dodona."""
    # Errors of the module itself, such as too many variables, have no code.
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_BUSY:
        others = ", ".join(lock_holders()) or "another program"
        return StoreError(
            f"the store {path} is locked by {others}.", hint="Try again when it has finished."
        )
    what, hint = _ERROR_MEANINGS.get(code, (f"failed: {error}", ""))
    return StoreError(f"the store {path} {what}.", hint=hint)


_ERROR_MEANINGS = {
    sqlite3.SQLITE_FULL: (
        "cannot grow: the disk is full",
        "Nothing that was acknowledged is lost. Make room; what failed can then be repeated.",
    ),
    sqlite3.SQLITE_READONLY: (
        "cannot be written: file or disk is read-only",
        "Make the file and its folder writable for this user.",
    ),
    sqlite3.SQLITE_CANTOPEN: (
        "cannot be opened",
        "Look at the permissions of the file and of its folder. Is the disk read-only?",
    ),
    sqlite3.SQLITE_IOERR: (
        "cannot be read or written: the disk reports an error",
        "Look at the disk and at the system's log.",
    ),
    sqlite3.SQLITE_CORRUPT: (
        "is damaged",
        "Nothing was changed. Keep a copy of the file, then restore a backup.",
    ),
    sqlite3.SQLITE_NOTADB: (
        "is not a SQLite database",
        "Nothing was changed. Name another file with [store] url.",
    ),
}
