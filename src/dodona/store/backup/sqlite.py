"""A copy of a SQLite store, made while others write; and putting one in a store's place."""

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
_PAGES_PER_STEP: Final = 2_048  # copied at once; what is done is told in between
_MAX_PROBLEMS: Final = 5
_LOG_SUFFIXES: Final = ("-wal", "-shm")


def copy(source: Path, target: Path, on_progress: OnProgress) -> None:
    """All that was committed when this began, of one moment; writers do not wait for it."""
    os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    try:
        with (
            closing(_connect_read_only(source, "mode=ro")) as old,
            closing(sqlite3.connect(target)) as new,
        ):
            # Held to the end: else each write of others would have the copy begin anew.
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
    """How many rows each table has; nothing beside the file is made or read."""
    try:
        with closing(_connect_read_only(path, "immutable=1")) as db:
            names = [
                name
                for (name,) in db.execute(
                    "SELECT name FROM pragma_table_list WHERE type = 'table' AND schema = 'main' "
                    "AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name"
                )
            ]
            return {
                name: db.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0]  # noqa: S608
                for name in names
            }
    except sqlite3.Error as error:
        raise sqlite.to_store_error(error, path) from error


def problems(folder: Path, manifest: Manifest) -> list[str]:
    """What is wrong inside the copy: its pages, its references, its rows."""
    path = folder / STORE_FILE
    try:
        with closing(_connect_read_only(path, "immutable=1")) as db:
            pages = [row[0] for row in db.execute(f"PRAGMA integrity_check({_MAX_PROBLEMS})")]
            found = [] if pages == ["ok"] else pages
            broken = db.execute("PRAGMA foreign_key_check").fetchmany(_MAX_PROBLEMS)
            found += [f"a row of {row[0]} refers to nothing" for row in broken]
            (application,) = db.execute("PRAGMA application_id").fetchone()
            if application != sqlite.APPLICATION_ID:
                found.append("it is a database of another program")
    except sqlite3.Error as error:
        return [str(sqlite.to_store_error(error, path))]
    now = count_rows(path)
    tables = sorted({*now, *manifest.tables})
    return found + [
        f"{name} has {now.get(name, 0):,} rows, not {manifest.tables.get(name, 0):,}"
        for name in tables
        if now.get(name) != manifest.tables.get(name)
    ]


def restore(folder: Path, manifest: Manifest, path: Path, on_progress: OnProgress) -> Path | None:
    """Make the copy the store; where the store is kept that was there before.

    Written beside and swapped at once: until then, the old one is as it was.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    # Whoever opens the store meanwhile is seen, and so are we.
    owners = FileOwners(Path(f"{path}-owners"))
    beside = path.with_name(f".{path.name}.restoring-{os.getpid()}")
    try:
        _reject_if_in_use(owners, path)
        _copy_verified(folder / STORE_FILE, manifest, beside, on_progress)
        _reject_if_in_use(owners, path)
        return _swap_in(path, beside)
    except OSError as error:
        raise StoreError(
            f"the store {path} was not restored, and is as it was: {error.strerror or error}.",
            hint="Look at the disk and at the permissions of its folder.",
        ) from error
    finally:
        with suppress(OSError):
            beside.unlink()
        owners.close()


def _copy_verified(source: Path, manifest: Manifest, target: Path, on_progress: OnProgress) -> None:
    """Byte by byte, into a file that is on the disk and known to be whole."""
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
    kept: Path | None = None
    if path.exists():
        _checkpoint(path)
        kept = _free_name(path.with_name(f"{path.name}{PREVIOUS_SUFFIX}"))
        os.link(path, kept)
        # A log that could not be folded belongs to the old file; beside the new one it would
        # be taken for that one's.
        for suffix in _LOG_SUFFIXES:
            log = Path(f"{path}{suffix}")
            if log.exists():
                log.replace(f"{kept}{suffix}")
    os.replace(replacement, path)
    fsync_path(path.parent)
    return kept


def _checkpoint(path: Path) -> None:
    """Have the log written into the file, so that the file is all there is. Damaged, it is left."""
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
    """This name, or the first with a number behind it that nobody has."""
    number, found = 1, path
    while found.exists():
        number += 1
        found = path.with_name(f"{path.name}-{number}")
    return found


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
