"""Opening a store: inspect, migrate, connect. Databases of other programs are never changed."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias
from urllib.parse import quote

from dodona.core.errors import StoreError
from dodona.store.db import postgres, sqlite
from dodona.store.db.database import Database
from dodona.store.db.location import StoreLocation
from dodona.store.db.migrate import NEWEST_REVISION, VERSION_TABLE, check_revision, upgrade

Durability: TypeAlias = Literal["full", "normal"]

_SELECT_REVISION = "SELECT version_num FROM dodona_version"
MIGRATION_LOCK_ID = 0x0D0D0A  # the PostgreSQL advisory lock that a migration holds


@dataclass(frozen=True, slots=True)
class StoreState:
    """The result of inspecting a store; `revision` is empty if it has no schema yet."""

    location: StoreLocation
    exists: bool
    revision: str = ""
    size: int | None = None

    @property
    def is_current(self) -> bool:
        return self.revision == NEWEST_REVISION


def inspect(location: StoreLocation) -> StoreState:
    """Inspect a store without changing it; raise if it is damaged, foreign, newer or retired."""
    state = _inspect_postgres(location) if location.path is None else _inspect_file(location.path)
    if state.revision:
        check_revision(state.revision, f"the store {location}")
    return state


def migrate(location: StoreLocation) -> StoreState:
    """Migrate the store to this version, creating it if needed; return its previous state."""
    before = inspect(location)
    if not before.is_current:
        if location.path is None:
            _migrate_postgres(location)
        else:
            _migrate_file(location.path)
    return before


async def open_database(location: StoreLocation, *, durability: Durability = "full") -> Database:
    """Migrate and open the store at a location."""
    return await asyncio.to_thread(_open, location, durability)


def _open(location: StoreLocation, durability: Durability) -> Database:
    migrate(location)
    if location.path is None:
        return postgres.PostgresDatabase(location, durability=durability)
    with sqlite.store_errors(location.path):
        return sqlite.SqliteDatabase(location.path, durability=durability)


def _inspect_file(path: Path) -> StoreState:
    location = StoreLocation(path=path)
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        return StoreState(location, exists=False)
    except OSError as error:
        raise StoreError(
            f"the store {path} cannot be read: {error.strerror}.",
            hint="Check the permissions of the file and its folder.",
        ) from error
    if path.is_dir():
        raise StoreError(f"the store {path} is a folder.", hint="Specify a file in it.")
    if size == 0:
        return StoreState(location, exists=False)
    with sqlite.store_errors(path):
        revision = sqlite.retry_while_busy(lambda: _read_revision(path))
        return StoreState(location, True, revision, size)


def _read_revision(path: Path) -> str:
    """Read the schema revision without leaving files next to the database.

    Even a reader creates files next to a database, unless it opens it as immutable. That is safe
    while no process has it open, and then there is no WAL file. If a process opened it meanwhile,
    the result is discarded, and the files exist anyway.
    """
    wal, before = Path(f"{path}-wal"), path.stat()
    if not wal.exists():
        try:
            revision = _open_and_read_revision(path, "immutable=1")
        except (sqlite3.Error, StoreError):
            if not _has_changed(path, before, wal):
                raise
        else:
            if not _has_changed(path, before, wal):
                return revision
    return _open_and_read_revision(path, "mode=ro")


def _has_changed(path: Path, before: os.stat_result, wal: Path) -> bool:
    now = path.stat()
    return wal.exists() or (now.st_mtime_ns, now.st_size) != (before.st_mtime_ns, before.st_size)


def _open_and_read_revision(path: Path, uri_options: str) -> str:
    uri = f"file:{quote(str(path))}?{uri_options}"
    with closing(sqlite3.connect(uri, uri=True, timeout=30)) as connection:
        return _file_revision(connection, path)


def _file_revision(connection: sqlite3.Connection, path: Path) -> str:
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    if not tables and application in (0, sqlite.APPLICATION_ID):
        return ""
    if application != sqlite.APPLICATION_ID or VERSION_TABLE not in tables:
        raise StoreError(
            f"the store {path} is a database of another program.",
            hint="Nothing was changed. Set [store] url to another file.",
        )
    row = connection.execute(_SELECT_REVISION).fetchone()
    return row[0] if row else ""


def _migrate_file(path: Path) -> None:
    sqlite.create_file(path)
    with sqlite.store_errors(path):
        sqlite.retry_while_busy(lambda: _migrate_at(path))


def _migrate_at(path: Path) -> None:
    with closing(_connect_to_migrate(path)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        # Another process may have migrated it while we waited for the lock.
        revision = _file_revision(connection, path)
        if revision == NEWEST_REVISION:
            connection.execute("ROLLBACK")
            return
        if revision:
            check_revision(revision, f"the store {path}")
        connection.execute(f"PRAGMA application_id = {sqlite.APPLICATION_ID}")
        upgrade(connection, dialect="sqlite")
        orphans = connection.execute("PRAGMA foreign_key_check").fetchall()
        if orphans:
            raise StoreError(
                f"migrating the store {path} would leave {len(orphans)} rows with broken "
                "references.",
                hint="Nothing was changed. Try: dodona db check.",
            )
        connection.execute("COMMIT")


def _connect_to_migrate(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=30, isolation_level=None)
    # Persistent in the file; cannot be changed within a transaction.
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA foreign_keys = OFF")  # tables are rebuilt
    return connection


def _inspect_postgres(location: StoreLocation) -> StoreState:
    with postgres.connected(location) as connection:
        return StoreState(location, True, _postgres_revision(connection))


def _postgres_revision(connection: postgres.Connection) -> str:
    table = connection.execute("SELECT to_regclass(%s)", (VERSION_TABLE,)).fetchone()
    if table is None or table[0] is None:
        return ""
    row = connection.execute(_SELECT_REVISION).fetchone()
    return row[0] if row else ""


def _migrate_postgres(location: StoreLocation) -> None:
    with postgres.connected(location) as connection:
        connection.autocommit = False
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (MIGRATION_LOCK_ID,))
        revision = _postgres_revision(connection)
        if revision != NEWEST_REVISION:
            if revision:
                check_revision(revision, f"the store {location}")
            upgrade(connection, dialect="postgresql")
        connection.commit()
