"""The store in PostgreSQL: pools of threads, each with its own connection.

The synchronous driver in threads costs half as much as the asynchronous one.
"""

from __future__ import annotations

import asyncio
import logging
import random
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, contextmanager
from typing import Any, TypeVar, cast

import psycopg
from sqlalchemy import BigInteger, bindparam, func, select

from dodona.concurrency.workers import OnOrphaned, WorkerThreads
from dodona.core.errors import StoreError, WriteRejected
from dodona.store.db.database import Row, StoreOperation, log_orphaned
from dodona.store.db.location import StoreLocation, strip_passwords
from dodona.store.db.owners import AdvisoryOwners, advisory_key
from dodona.store.db.statements import POSTGRES, Statement, statement

T = TypeVar("T")
Connection = psycopg.Connection[Row]

_log = logging.getLogger(__name__)

_WRITER_COUNT = 8
_READER_COUNT = 4
_MAX_ATTEMPTS = 12
_RETRY_PAUSE_SECONDS = 0.01  # multiplied by the number of attempts
_BEGIN = "BEGIN"
_BEGIN_SOFT = "BEGIN; SET LOCAL synchronous_commit = off"
_BEGIN_READ_ONLY = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_LIVENESS_POLL_SECONDS = 10.0  # how often we check that we still hold the owner lock


_LOCK_NAME = statement(select(func.pg_advisory_xact_lock(bindparam("key", type_=BigInteger))))


class PostgresTransaction:
    __slots__ = ("_connection", "_execute")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._execute = cast(Callable[..., psycopg.Cursor[Row]], connection.execute)

    def _execute_statement(
        self, statement: Statement, values: dict[str, Any]
    ) -> psycopg.Cursor[Row]:
        sql = statement.sql(POSTGRES)
        return self._execute(sql, statement.prepare(values))

    def execute(self, statement: Statement, **values: Any) -> int:
        return self._execute_statement(statement, values).rowcount

    def fetch_one(self, statement: Statement, **values: Any) -> Row | None:
        return self._execute_statement(statement, values).fetchone()

    def fetch_all(self, statement: Statement, **values: Any) -> list[Row]:
        return self._execute_statement(statement, values).fetchall()

    def insert(self, statement: Statement, **values: Any) -> int:
        row = self._execute_statement(statement, values).fetchone()
        assert row is not None
        return row[0]

    def execute_many(self, statement: Statement, rows: Sequence[dict[str, Any]]) -> None:
        sql = cast(Any, statement.sql(POSTGRES))
        with self._connection.cursor() as cursor:
            cursor.executemany(sql, [statement.prepare(row) for row in rows])

    def lock(self, statement: Statement, **values: Any) -> None:
        self._execute_statement(statement, values)

    def lock_name(self, name: str) -> None:
        self._execute_statement(_LOCK_NAME, {"key": advisory_key(name)})


class PostgresDatabase:
    """An open database. Created by `open_database`, which inspects and migrates it first."""

    def __init__(self, location: StoreLocation, *, durability: str) -> None:
        self._location = location
        self._durability = durability
        self._thread_local = threading.local()
        self._connections: list[Connection] = []
        self._owners = AdvisoryOwners()
        self._owner_connection = self._lock_owner()
        self._closing = threading.Event()
        self._check_now = threading.Event()  # a connection broke: the owner lock may be lost too
        self._liveness_thread = threading.Thread(
            target=self._keep_owner_locked, name="dodona-store-alive", daemon=True
        )
        self._liveness_thread.start()
        # Separate pools, so that writers waiting for a lock do not block readers.
        self._writers = WorkerThreads(_WRITER_COUNT, "dodona-store-writer")
        self._readers = WorkerThreads(_READER_COUNT, "dodona-store-reader")

    @property
    def owners(self) -> AdvisoryOwners:
        return self._owners

    async def write(self, operation: StoreOperation[T], *, soft: bool = False) -> T:
        return await self.submit(operation, soft=soft)

    def submit(
        self,
        operation: StoreOperation[T],
        *,
        soft: bool = False,
        on_orphaned: OnOrphaned = log_orphaned,
    ) -> asyncio.Future[T]:
        begin = _BEGIN_SOFT if soft else _BEGIN
        return self._writers.submit(
            lambda: self._transact(operation, begin), on_orphaned=on_orphaned
        )

    async def read(self, operation: StoreOperation[T]) -> T:
        return await self._readers.submit(lambda: self._read(operation))

    async def close(self) -> None:
        if not self._closing.is_set():
            self._closing.set()
            self._check_now.set()
            await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._writers.close()
        self._readers.close()
        self._liveness_thread.join()
        for connection in (*self._connections, self._owner_connection):
            connection.close()

    def _read(self, operation: StoreOperation[T]) -> T:
        return self._transact(operation, _BEGIN_READ_ONLY)

    def _transact(self, operation: StoreOperation[T], begin: str) -> T:
        """Run an operation; retry after a conflict or a lost connection."""
        for attempt in range(1, _MAX_ATTEMPTS + 1):
            is_last = attempt == _MAX_ATTEMPTS
            connection = self._thread_connection()
            try:
                return _run_in_transaction(operation, connection, begin)
            except (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected) as error:
                if is_last:
                    raise to_store_error(error, self._location) from error
                # A random pause, so that conflicting transactions do not collide again.
                time.sleep(random.uniform(0, _RETRY_PAUSE_SECONDS * attempt))  # noqa: S311
            except psycopg.OperationalError as error:
                # Nothing was committed on the broken connection: retry on a new one.
                if is_last or not connection.broken:
                    raise to_store_error(error, self._location) from error
                self._check_now.set()
            except psycopg.Error as error:
                raise to_store_error(error, self._location) from error
        raise AssertionError("the last attempt returns or raises")

    def _thread_connection(self) -> Connection:
        connection: Connection | None = getattr(self._thread_local, "connection", None)
        if connection is None or connection.closed:
            if connection is not None:
                self._connections.remove(connection)
            connection = connect(self._location, durability=self._durability)
            self._thread_local.connection = connection
            self._connections.append(connection)
        return connection

    def _lock_owner(self) -> Connection:
        connection = connect(self._location, durability=self._durability)
        try:
            connection.execute("SELECT pg_advisory_lock(%s)", (self._owners.key,))
        except psycopg.Error as error:
            connection.close()
            raise to_store_error(error, self._location) from error
        return connection

    def _keep_owner_locked(self) -> None:
        """Keep a session that holds our owner lock: without it, other processes take our runs."""
        while not self._closing.is_set():
            self._check_now.wait(_LIVENESS_POLL_SECONDS)
            self._check_now.clear()
            try:
                self._owner_connection.execute("SELECT 1")
            except psycopg.Error:
                self._owner_connection.close()
                try:
                    self._owner_connection = self._lock_owner()
                except StoreError as error:
                    _log.warning("other processes may consider this one dead: %s", error)


def _run_in_transaction(operation: StoreOperation[T], connection: Connection, begin: str) -> T:
    execute = cast(Callable[[str], object], connection.execute)
    execute(begin)
    try:
        result = operation(PostgresTransaction(connection))
    except BaseException:
        if not connection.broken:
            execute("ROLLBACK")
        raise
    try:
        execute("COMMIT")
    except psycopg.OperationalError as error:
        if connection.broken:
            raise StoreError(
                "the connection to the database broke during a commit: it is unknown whether the "
                "commit succeeded.",
                hint="The run can be resumed: recorded steps are not repeated.",
            ) from error
        raise
    return result


def connect(location: StoreLocation, *, durability: str) -> Connection:
    """Open a connection in autocommit mode; transactions are begun explicitly.

    It waits up to 30 seconds for a lock, like SQLite's writer, and detects a dead connection within
    a minute.
    """
    try:
        connection: Connection = psycopg.connect(
            location.dsn,
            autocommit=True,
            application_name="dodona",
            connect_timeout=10,
            keepalives_idle=20,
            keepalives_interval=10,
            keepalives_count=3,
            tcp_user_timeout=60_000,
        )
        connection.execute("SET lock_timeout = '30s'")
        connection.execute("SET idle_in_transaction_session_timeout = '60s'")
        if durability != "full":
            connection.execute("SET synchronous_commit = off")
    except psycopg.Error as error:
        raise to_store_error(error, location) from error
    return connection


@contextmanager
def connected(location: StoreLocation) -> Generator[Connection]:
    """Yield a connection for maintenance, then close it; its errors become StoreErrors."""
    with closing(connect(location, durability="full")) as connection:
        try:
            yield connection
        except psycopg.Error as error:
            raise to_store_error(error, location) from error


def to_store_error(error: psycopg.Error, location: StoreLocation) -> StoreError:
    """Translate a PostgreSQL error into an error for the operator."""
    message = strip_passwords(" ".join(str(error).split()).rstrip("."))
    if isinstance(error, psycopg.errors.DiskFull):
        return StoreError(
            f"the store {location} cannot grow: the disk is full.",
            hint="Acknowledged data is safe. Free disk space, then repeat the failed request.",
        )
    if isinstance(error, psycopg.errors.LockNotAvailable):
        return StoreError(
            f"the store {location} is locked by another program.",
            hint="Try again later.",
        )
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        return StoreError(
            f"the store {location} denies permission: {message}.",
            hint="Grant the role the right to create and use tables in its schema.",
        )
    if isinstance(error, psycopg.errors.ReadOnlySqlTransaction):
        return StoreError(
            f"the store {location} is read-only.", hint="If this is a standby, use the primary."
        )
    if isinstance(error, psycopg.errors.DataCorrupted | psycopg.errors.IndexCorrupted):
        return StoreError(f"the store {location} is damaged: {message}.", hint="Restore a backup.")
    if isinstance(error, psycopg.OperationalError):
        return StoreError(
            f"the store {location} cannot be reached: {message}.",
            hint="Check that the server is running, and the user name and password.",
        )
    is_rejected = isinstance(error, psycopg.DataError | psycopg.IntegrityError)
    return (WriteRejected if is_rejected else StoreError)(
        f"the store {location} failed: {message}."
    )
