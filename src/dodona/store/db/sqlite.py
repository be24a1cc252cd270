"""The store in a SQLite file in WAL mode, with one writer thread and several readers."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeVar

from dodona.concurrency.workers import OnOrphaned, WorkerThreads
from dodona.core.errors import StoreError, WriteRejected
from dodona.store.db.database import Row, StoreOperation, log_orphaned
from dodona.store.db.owners import FileOwners
from dodona.store.db.statements import SQLITE, Statement
from dodona.store.db.writer import SYNC_FULL, SYNC_NORMAL, Writer

T = TypeVar("T")

APPLICATION_ID: Final = 0x0D0D0A1  # marks the file as ours in its header
_READER_COUNT = 4
_BUSY_TIMEOUT_SECONDS = 30.0


class SqliteTransaction:
    """Runs statements on a connection. The caller begins and ends the transaction."""

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
        row_id = self._execute_statement(statement, values).lastrowid
        assert row_id is not None
        return row_id

    def execute_many(self, statement: Statement, rows: Sequence[dict[str, Any]]) -> None:
        sql = statement.sql(SQLITE)
        to_positional, prepare = statement.to_positional, statement.prepare
        self._execute_all(sql, [to_positional(prepare(row)) for row in rows])

    def lock(self, statement: Statement, **values: Any) -> None:
        """Do nothing: the writer has locked the whole file."""

    def lock_name(self, name: str) -> None:
        """Do nothing: the writer has locked the whole file."""


class SqliteDatabase:
    """An open file. Created by `open_database`, which inspects and migrates it first."""

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

    async def write(self, operation: StoreOperation[T], *, soft: bool = False) -> T:
        return await self._writer.submit(operation, soft=soft)

    def submit(
        self,
        operation: StoreOperation[T],
        *,
        soft: bool = False,
        on_orphaned: OnOrphaned = log_orphaned,
    ) -> asyncio.Future[T]:
        return self._writer.submit(operation, soft=soft, on_orphaned=on_orphaned)

    async def read(self, operation: StoreOperation[T]) -> T:
        return await self._readers.submit(lambda: self._read(operation))

    def _read(self, operation: StoreOperation[T]) -> T:
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
        """Return an idle connection, or open one: at most one per reader thread."""
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
        # Last, because closing the writer's connection checkpoints the WAL into the file.
        self._writer.close()
        self._owners.close()

    def _to_store_error(self, error: sqlite3.Error) -> StoreError:
        return to_store_error(error, self._path, lock_holders=self._owners.describe_others)


def retry_while_busy(work: Callable[[], T]) -> T:
    """Run a function, retrying while the file is locked: SQLite itself does not always wait."""
    deadline = time.monotonic() + _BUSY_TIMEOUT_SECONDS
    while True:
        try:
            return work()
        except sqlite3.OperationalError as error:
            is_busy = error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
            if not is_busy or time.monotonic() > deadline:
                raise
        time.sleep(0.005)


def connect_writer(path: Path, *, durability: str) -> sqlite3.Connection:
    """Open a connection for writing.

    It waits while other processes close the file, then never for a lock: the writer polls instead.
    """
    connection = sqlite3.connect(
        path, timeout=30, isolation_level=None, check_same_thread=False, cached_statements=256
    )
    connection.execute(SYNC_FULL if durability == "full" else SYNC_NORMAL)
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA secure_delete = ON")  # overwrite deleted content in the file
    connection.execute("PRAGMA journal_size_limit = 67108864")
    connection.execute("PRAGMA busy_timeout = 0")
    return connection


def connect_reader(path: Path) -> sqlite3.Connection:
    """Open a read-only connection."""
    connection = sqlite3.connect(
        path, timeout=10, isolation_level=None, check_same_thread=False, cached_statements=256
    )
    connection.execute("PRAGMA query_only = ON")
    return connection


def create_file(path: Path) -> None:
    """Create the file, readable by its owner only, because conversations are confidential.

    A file that exists is not opened: closing it would release the locks that SQLite holds on it
    for other connections of this process.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except OSError as error:
        raise StoreError(
            f"cannot create the store {path}: {error.strerror}.",
            hint="Choose another location with [store] url, or DODONA_STORE__URL.",
        ) from error


@contextmanager
def store_errors(path: Path) -> Generator[None]:
    """Translate the errors of a SQLite file into StoreErrors."""
    try:
        yield
    except sqlite3.Error as error:
        raise to_store_error(error, path) from error


def to_store_error(
    error: sqlite3.Error, path: Path, *, lock_holders: Callable[[], list[str]] = list
) -> StoreError:
    """Translate a SQLite error into an error for the operator."""
    # Errors of the Python module, such as too many variables, have no code.
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_BUSY:
        others = ", ".join(lock_holders()) or "another program"
        return StoreError(f"the store {path} is locked by {others}.", hint="Try again later.")
    message, hint = _ERROR_MEANINGS.get(code, (f"failed: {error}", ""))
    is_rejected = isinstance(error, sqlite3.DataError | sqlite3.IntegrityError)
    return (WriteRejected if is_rejected else StoreError)(f"the store {path} {message}.", hint=hint)


_ERROR_MEANINGS = {
    sqlite3.SQLITE_FULL: (
        "cannot grow: the disk is full",
        "Acknowledged data is safe. Free disk space, then repeat the failed request.",
    ),
    sqlite3.SQLITE_READONLY: (
        "cannot be written: file or disk is read-only",
        "Make the file and its folder writable for this user.",
    ),
    sqlite3.SQLITE_CANTOPEN: (
        "cannot be opened",
        "Check the permissions of the file and its folder. Is the disk read-only?",
    ),
    sqlite3.SQLITE_IOERR: (
        "cannot be read or written: the disk reports an error",
        "Check the disk and the system log.",
    ),
    sqlite3.SQLITE_CORRUPT: (
        "is damaged",
        "Nothing was changed. Keep a copy of the file, then restore a backup.",
    ),
    sqlite3.SQLITE_NOTADB: (
        "is not a SQLite database",
        "Nothing was changed. Set [store] url to another file.",
    ),
}
