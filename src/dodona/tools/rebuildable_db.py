"""A SQLite file whose content can be rebuilt from other data.

A damaged file, or one with another format version, is rebuilt automatically; a database of another
program is never touched. Each thread keeps its own open connection. All calls block.
"""

from __future__ import annotations

import fcntl
import logging
import os
import sqlite3
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, sleep
from typing import Final, TypeAlias, TypeVar

from dodona.core.errors import ToolFailed

LOCK_TIMEOUT_SECONDS: Final = 20.0  # wait for another process that is writing

_POLL_SECONDS: Final = 0.02
_CORRUPTION_CODES: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_TRUNCATION_CODES: Final = frozenset({sqlite3.SQLITE_IOERR_SHORT_READ})

_log = logging.getLogger(__name__)
T = TypeVar("T")

FileIdentity: TypeAlias = tuple[int, int]  # device and inode number; survives a rename


@dataclass(frozen=True, slots=True)
class DatabaseFormat:
    """The schema of such a file, and the markers that identify it as ours."""

    schema: str
    application_id: int
    version: int
    label: str = "cache"  # for errors
    cache_kb: int = 8_000  # page cache of each connection


@dataclass(slots=True, eq=False)
class _ThreadConnection:
    """A connection. Hold `lock` while you use or close it."""

    db: sqlite3.Connection
    identity: FileIdentity
    lock: threading.RLock = field(default_factory=threading.RLock)
    is_closed: bool = False

    def close(self) -> None:
        with self.lock:
            self.is_closed = True
            self.db.close()


class _VersionMismatch(sqlite3.DatabaseError):
    """The file is ours but has another format version."""


class RebuildableDatabase:
    """One such file. Several instances, in several processes, may share a file."""

    def __init__(self, path: Path, database_format: DatabaseFormat) -> None:
        self._path = path
        self._format = database_format
        self._thread_local = threading.local()
        self._lock = threading.Lock()
        self._connections: list[_ThreadConnection] = []

    def run_safely(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Like `run`; a database error becomes a ToolFailed without its text, which names paths."""
        try:
            return self.run(work)
        except sqlite3.Error as error:
            _log.error("the %s cannot be used: %s", self._format.label, error)
            raise ToolFailed(
                f"the {self._format.label} is unavailable at the moment.", hint="Try again later."
            ) from error

    def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work` and return its result; if the file is damaged, retry on a new one."""
        try:
            return self._run_on_connection(work)
        except sqlite3.DatabaseError as error:
            if not is_damaged(error):
                raise
            _log.warning("%s is damaged (%s); rebuilding it", self._path, error)
        self.discard()
        return self._run_on_connection(work)

    def identity(self) -> FileIdentity:
        """Return the identity of the current file."""
        try:
            status = os.stat(self._path)
        except FileNotFoundError:
            return (0, 0)
        return (status.st_dev, status.st_ino)

    def discard(self) -> None:
        """Remove the file this thread has open, unless it has been replaced already."""
        connection = self._thread_connection()
        with file_lock(self._lock_path):
            if connection is None or connection.identity == self.identity():
                _remove_files(self._path)

    def close(self) -> None:
        """Close the connections of all threads; those in use close when their work ends."""
        with self._lock:
            connections, self._connections = self._connections, []
            self._thread_local = threading.local()
        for connection in connections:
            connection.close()

    @property
    def _lock_path(self) -> Path:
        return self._path.with_name(f"{self._path.name}.lock")

    def _thread_connection(self) -> _ThreadConnection | None:
        return getattr(self._thread_local, "connection", None)

    def _run_on_connection(self, work: Callable[[sqlite3.Connection], T]) -> T:
        while True:
            connection = self._current_connection()
            with connection.lock:
                if not connection.is_closed:
                    return work(connection.db)

    def _current_connection(self) -> _ThreadConnection:
        """Return this thread's connection; open a new one if the file was replaced."""
        previous = self._thread_connection()
        if previous is not None and previous.identity == self.identity():
            return previous
        self._thread_local.connection = connection = self._open_connection()
        if previous is not None:
            # Close only after the new file exists: otherwise it could get the inode number of the
            # old one, and its identity would look unchanged.
            with self._lock:
                self._connections.remove(previous)
            previous.close()
        return connection

    def _open_connection(self) -> _ThreadConnection:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        # Lock so that the file cannot be removed between opening it and the first read: SQLite
        # would then find the write-ahead log of another file next to it.
        with file_lock(self._lock_path):
            try:
                db = self._connect()
            except sqlite3.DatabaseError as error:
                if not is_damaged(error):
                    raise
                _log.info("rebuilding %s: %s", self._path, error)
                _remove_files(self._path)
                db = self._connect()
            connection = _ThreadConnection(db, self.identity())
        with self._lock:
            self._connections.append(connection)
        return connection

    def _connect(self) -> sqlite3.Connection:
        # Readable by its owner only: it contains the indexed text. A file that exists is not
        # opened here: closing it would release the locks of this process's other connections.
        with suppress(FileExistsError):
            os.close(os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))
        db = sqlite3.connect(
            self._path, timeout=LOCK_TIMEOUT_SECONDS, isolation_level=None, check_same_thread=False
        )
        try:
            if not self._has_expected_format(db):
                self._create_schema(db)
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = NORMAL")
            db.execute("PRAGMA temp_store = MEMORY")
            db.execute(f"PRAGMA cache_size = -{self._format.cache_kb}")
        except BaseException:
            db.close()
            raise
        return db

    def _has_expected_format(self, db: sqlite3.Connection) -> bool:
        markers = (_read_pragma(db, "application_id"), _read_pragma(db, "user_version"))
        return markers == (self._format.application_id, self._format.version)

    def _create_schema(self, db: sqlite3.Connection) -> None:
        if db.execute("SELECT 1 FROM sqlite_schema").fetchone() is not None:
            if _read_pragma(db, "application_id") == self._format.application_id:
                raise _VersionMismatch("the format version differs")
            raise ToolFailed("there is no index: its file is a database of another program.")
        with transaction(db):
            for statement in _split_statements(self._format.schema):
                db.execute(statement)
            db.execute(f"PRAGMA application_id = {self._format.application_id}")
            db.execute(f"PRAGMA user_version = {self._format.version}")


@contextmanager
def transaction(db: sqlite3.Connection) -> Generator[None]:
    """Run the block in a write transaction; roll back if it raises."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        if db.in_transaction:  # an error such as a full disk may have ended it
            db.execute("ROLLBACK")
        raise
    db.execute("COMMIT")


@contextmanager
def snapshot(db: sqlite3.Connection) -> Generator[None]:
    """Run several reads on one consistent state."""
    db.execute("BEGIN")
    try:
        yield
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")


# Selects the rows at or below a path; `path_bounds` returns the values.
IS_BELOW_PATH: Final = "(path = ? OR path > ? AND path < ?)"


def path_bounds(path: str) -> tuple[str, str, str]:
    """Return the values for `IS_BELOW_PATH`; everything is below the empty path."""
    return (path, f"{path}/", f"{path}{chr(ord('/') + 1)}") if path else ("", "", chr(0x10FFFF))


def is_damaged(error: sqlite3.DatabaseError) -> bool:
    """Whether the error means that the file must be rebuilt."""
    code = getattr(error, "sqlite_errorcode", 0)
    return (
        isinstance(error, _VersionMismatch)
        or code & 0xFF in _CORRUPTION_CODES
        or code in _TRUNCATION_CODES
    )


@contextmanager
def file_lock(path: Path, *, timeout: float = LOCK_TIMEOUT_SECONDS) -> Generator[None]:
    """Hold a lock across processes. Raises BlockingIOError on timeout."""
    file = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        deadline = monotonic() + timeout
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if monotonic() >= deadline:
                    raise
            sleep(_POLL_SECONDS)
        yield
    finally:
        os.close(file)


def _remove_files(path: Path) -> None:
    for suffix in ("-wal", "-shm", ""):
        with suppress(FileNotFoundError):
            os.unlink(f"{path}{suffix}")


def _split_statements(script: str) -> Iterator[str]:
    """Split a script into statements: `executescript` would commit the transaction."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def _read_pragma(db: sqlite3.Connection, pragma: str) -> int:
    return db.execute(f"PRAGMA {pragma}").fetchone()[0]
