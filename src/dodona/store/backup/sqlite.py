"""Backup and restore of a SQLite store: copied while others write, replaced atomically."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Final
from urllib.parse import quote

from dodona.core.errors import StoreError
from dodona.store.backup.manifest import Manifest, OnProgress, entry_of, fsync_path, read_blocks
from dodona.store.db import sqlite
from dodona.store.db.owners import FileOwners

STORE_FILE: Final = "store.db"
PREVIOUS_SUFFIX: Final = ".before-restore"
_PAGES_PER_STEP: Final = 2_048  # copied between two progress reports
_MAX_PROBLEMS: Final = 5
_LOG_SUFFIXES: Final = ("-wal", "-shm")


def copy(source: Path, target: Path, on_progress: OnProgress) -> None:
    """Copy a consistent snapshot of all committed data, without blocking writers."""
    os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    try:
        with (
            closing(_connect_read_only(source, "mode=ro")) as old,
            closing(sqlite3.connect(target)) as new,
        ):
            # Keeps the snapshot: otherwise every write of others would restart the copy.
            old.execute("BEGIN")
            old.execute("SELECT count(*) FROM sqlite_master").fetchone()
            old.backup(
                new,
                pages=_PAGES_PER_STEP,
                progress=lambda _, left, total: on_progress(total - left, total),
                sleep=0.01,
            )
    except sqlite3.Error as error:
        is_full = getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL
        raise sqlite.to_store_error(error, target if is_full else source) from error
    fsync_path(target)


def count_rows(path: Path) -> dict[str, int]:
    """Return the row count of each table, without creating or reading other files."""
    with (
        sqlite.store_errors(path),
        closing(_connect_read_only(path, "immutable=1")) as db,
    ):
        rows = db.execute(
            "SELECT name FROM pragma_table_list WHERE type = 'table' AND schema = 'main' "
            "AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name"
        ).fetchall()
        return {
            name: db.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0]  # noqa: S608
            for (name,) in rows
        }


def problems(folder: Path, manifest: Manifest) -> list[str]:
    """Return the problems inside the copy: pages, references and row counts."""
    path = folder / STORE_FILE
    try:
        with closing(_connect_read_only(path, "immutable=1")) as db:
            pages = [row[0] for row in db.execute(f"PRAGMA integrity_check({_MAX_PROBLEMS})")]
            problems = [] if pages == ["ok"] else pages
            orphans = db.execute("PRAGMA foreign_key_check").fetchmany(_MAX_PROBLEMS)
            problems += [f"a row of {row[0]} has a broken reference" for row in orphans]
            (application,) = db.execute("PRAGMA application_id").fetchone()
            if application != sqlite.APPLICATION_ID:
                problems.append("it is a database of another program")
    except sqlite3.Error as error:
        return [str(sqlite.to_store_error(error, path))]
    counts = count_rows(path)
    tables = sorted({*counts, *manifest.tables})
    return problems + [
        f"{name} has {counts.get(name, 0):,} rows, not {manifest.tables.get(name, 0):,}"
        for name in tables
        if counts.get(name) != manifest.tables.get(name)
    ]


def restore(folder: Path, manifest: Manifest, path: Path, on_progress: OnProgress) -> Path | None:
    """Replace the store with the copy; return the path of the previous store, if any.

    The copy is written next to the store and swapped in atomically: until then, nothing changes.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    # Detects processes that open the store meanwhile, and shows them that we use it.
    owners = FileOwners(Path(f"{path}-owners"))
    partial = path.with_name(f".{path.name}.restoring-{os.getpid()}")
    try:
        _reject_if_in_use(owners, path)
        _copy_verified(folder / STORE_FILE, manifest, partial, on_progress)
        _reject_if_in_use(owners, path)
        return _swap_in(path, partial)
    except OSError as error:
        raise StoreError(
            f"the store {path} was not restored and is unchanged: {error.strerror or error}.",
            hint="Check the disk and the permissions of its folder.",
        ) from error
    finally:
        with suppress(OSError):
            partial.unlink()
        owners.close()


def _copy_verified(source: Path, manifest: Manifest, target: Path, on_progress: OnProgress) -> None:
    """Copy a file, flush it to the disk, and verify its checksum."""
    total, done = source.stat().st_size, 0
    with open(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        for block in read_blocks(source):
            file.write(block)
            done += len(block)
            on_progress(done, total)
        file.flush()
        os.fsync(file.fileno())
    if entry_of(target) != manifest.files[STORE_FILE]:
        raise StoreError(f"the backup {source.parent} is damaged.", hint="Use another backup.")


def _swap_in(path: Path, replacement: Path) -> Path | None:
    previous: Path | None = None
    if path.exists():
        _checkpoint(path)
        previous = _free_name(path.with_name(f"{path.name}{PREVIOUS_SUFFIX}"))
        os.link(path, previous)
        # A WAL file that could not be checkpointed belongs to the old file; next to the new one,
        # SQLite would apply it to that.
        for suffix in _LOG_SUFFIXES:
            wal = Path(f"{path}{suffix}")
            if wal.exists():
                wal.replace(f"{previous}{suffix}")
    os.replace(replacement, path)
    fsync_path(path.parent)
    return previous


def _checkpoint(path: Path) -> None:
    """Checkpoint the WAL into the file, so that the file is complete. Ignore a damaged file."""
    try:
        with closing(sqlite3.connect(path, timeout=5)) as db:
            is_busy, _, _ = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    except sqlite3.Error as error:
        codes = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
        is_busy = getattr(error, "sqlite_errorcode", 0) & 0xFF in codes
    if is_busy:
        raise StoreError(
            f"the store {path} is in use by another program.",
            hint="Stop it first. Nothing was changed.",
        )


def _free_name(path: Path) -> Path:
    """Return the path, or the first with a number appended that does not exist."""
    number, candidate = 1, path
    while candidate.exists():
        number += 1
        candidate = path.with_name(f"{path.name}-{number}")
    return candidate


def _reject_if_in_use(owners: FileOwners, path: Path) -> None:
    if others := owners.describe_others():
        raise StoreError(
            f"the store {path} is in use by {', '.join(others)}.",
            hint="Stop the gateway first. Nothing was changed.",
        )


def _connect_read_only(path: Path, uri_options: str) -> sqlite3.Connection:
    return sqlite3.connect(
        f"file:{quote(str(path.absolute()))}?{uri_options}",
        uri=True,
        timeout=30,
        isolation_level=None,
    )
