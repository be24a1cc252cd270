"""A SQLite file that can be thrown away: what it holds can be made again from elsewhere.

So a damaged file, or one of another version, is made anew and nobody is asked; another program's
is not touched. Each thread has a connection of its own, which stays open. All of it blocks.
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

LOCK_TIMEOUT_SECONDS: Final = 20.0  # for another process that writes

_POLL_SECONDS: Final = 0.02
_CORRUPTION_CODES: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_TRUNCATION_CODES: Final = frozenset({sqlite3.SQLITE_IOERR_SHORT_READ})

_log = logging.getLogger(__name__)
T = TypeVar("T")

FileIdentity: TypeAlias = tuple[int, int]  # a file's device and number, whatever its name is by now


@dataclass(frozen=True, slots=True)
class DatabaseFormat:
    """What such a file is: its tables, and the marks by which one of ours is known."""

    schema: str
    application_id: int
    version: int
    cache_kb: int = 8_000  # of pages that each connection keeps


@dataclass(slots=True, eq=False)
class _ThreadConnection:
    """A connection; `used` is held by who works with it, or closes it."""

    db: sqlite3.Connection
    identity: FileIdentity
    lock: threading.RLock = field(default_factory=threading.RLock)
    is_closed: bool = False

    def close(self) -> None:
        with self.lock:
            self.is_closed = True
            self.db.close()


class _VersionMismatch(sqlite3.DatabaseError):
    """A file of ours, of another version."""


class RebuildableDatabase:
    """One such file. A program may have several of these on one file, in several processes."""

    def __init__(self, path: Path, database_format: DatabaseFormat) -> None:
        self._path = path
        self._format = database_format
        self._thread_local = threading.local()
        self._lock = threading.Lock()
        self._connections: list[_ThreadConnection] = []

    def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """What the work comes to. If the file is damaged, it is done once more on a new one."""
        try:
            return self._run_on_connection(work)
        except sqlite3.DatabaseError as error:
            if not is_damaged(error):
                raise
            _log.warning("%s is damaged (%s) and is made anew", self._path, error)
        self.discard()
        return self._run_on_connection(work)

    def identity(self) -> FileIdentity:
        """Of the file that is there now."""
        try:
            found = os.stat(self._path)
        except FileNotFoundError:
            return (0, 0)
        return (found.st_dev, found.st_ino)

    def discard(self) -> None:
        """Remove the file that this thread has open, unless another has done so already."""
        known = self._thread_connection()
        with file_lock(self._lock_path):
            if known is None or known.identity == self.identity():
                _remove_files(self._path)

    def close(self) -> None:
        """Close every thread's connection, those in use when their work is done."""
        with self._lock:
            opened, self._connections = self._connections, []
            self._thread_local = threading.local()
        for each in opened:
            each.close()

    @property
    def _lock_path(self) -> Path:
        return self._path.with_name(f"{self._path.name}.lock")

    def _thread_connection(self) -> _ThreadConnection | None:
        return getattr(self._thread_local, "opened", None)

    def _run_on_connection(self, work: Callable[[sqlite3.Connection], T]) -> T:
        while True:
            opened = self._current_connection()
            with opened.lock:
                if not opened.is_closed:
                    return work(opened.db)

    def _current_connection(self) -> _ThreadConnection:
        """This thread's connection. When the file was made anew, so is the connection."""
        known = self._thread_connection()
        if known is not None and known.identity == self.identity():
            return known
        self._thread_local.opened = opened = self._open_connection()
        if known is not None:
            # Not before the new file is there: it could get the number of the old one, and whoever
            # asks for the identity would take it for that.
            with self._lock:
                self._connections.remove(known)
            known.close()
        return opened

    def _open_connection(self) -> _ThreadConnection:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        # Nobody may remove the file between our opening it and our first look at it: what SQLite
        # then found beside it would be another file's log.
        with file_lock(self._lock_path):
            try:
                db = self._connect()
            except sqlite3.DatabaseError as error:
                if not is_damaged(error):
                    raise
                _log.info("%s is made anew: %s", self._path, error)
                _remove_files(self._path)
                db = self._connect()
            opened = _ThreadConnection(db, self.identity())
        with self._lock:
            self._connections.append(opened)
        return opened

    def _connect(self) -> sqlite3.Connection:
        # Its owner's alone, as it has the text of what it indexes in it.
        os.close(os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
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
        marks = (_read_pragma(db, "application_id"), _read_pragma(db, "user_version"))
        return marks == (self._format.application_id, self._format.version)

    def _create_schema(self, db: sqlite3.Connection) -> None:
        if db.execute("SELECT 1 FROM sqlite_schema").fetchone() is not None:
            if _read_pragma(db, "application_id") == self._format.application_id:
                raise _VersionMismatch("it is of another version")
            raise ToolFailed("there is no index: its file is another program's database.")
        with transaction(db):
            for statement in _split_statements(self._format.schema):
                db.execute(statement)
            db.execute(f"PRAGMA application_id = {self._format.application_id}")
            db.execute(f"PRAGMA user_version = {self._format.version}")


@contextmanager
def transaction(db: sqlite3.Connection) -> Generator[None]:
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        if db.in_transaction:  # a full disk has ended it already
            db.execute("ROLLBACK")
        raise
    db.execute("COMMIT")


@contextmanager
def snapshot(db: sqlite3.Connection) -> Generator[None]:
    """Several reads of one state."""
    db.execute("BEGIN")
    try:
        yield
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")


def is_damaged(error: sqlite3.DatabaseError) -> bool:
    """Would a new file help?"""
    code = getattr(error, "sqlite_errorcode", 0)
    return (
        isinstance(error, _VersionMismatch)
        or code & 0xFF in _CORRUPTION_CODES
        or code in _TRUNCATION_CODES
    )


@contextmanager
def file_lock(path: Path, *, timeout: float = LOCK_TIMEOUT_SECONDS) -> Generator[None]:
    """Hold a lock that all processes see. BlockingIOError when it cannot be had in time."""
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
    """One by one: `executescript` would end the transaction."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def _read_pragma(db: sqlite3.Connection, pragma: str) -> int:
    return db.execute(f"PRAGMA {pragma}").fetchone()[0]
