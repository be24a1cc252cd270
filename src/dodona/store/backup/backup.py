"""Backups of a store: created while it is in use, verified without a server, restored completely.

A backup is a folder: the data, extra files of the caller, and a manifest with checksums. The data
is one file for SQLite, and one file per table for PostgreSQL. A backup can only be restored into
the same kind of database.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from dodona.core.errors import BadRequest, NotFound, StoreError
from dodona.core.version import __version__
from dodona.store.backup import postgres as backup_postgres
from dodona.store.backup import sqlite as backup_sqlite
from dodona.store.backup.manifest import (
    FORMAT_VERSION,
    MANIFEST_FILE,
    FileEntry,
    Manifest,
    OnProgress,
    entry_of,
    fsync_path,
    write_file,
)
from dodona.store.db.location import StoreLocation
from dodona.store.db.migrate import check_revision
from dodona.store.db.open import inspect
from dodona.store.integrity import CheckResult

SQLITE, POSTGRES = "sqlite", "postgresql"


def create(
    location: StoreLocation,
    folder: Path,
    *,
    extra_files: Mapping[str, bytes] | None = None,
    on_progress: OnProgress,
) -> Manifest:
    """Back up all committed data. The folder appears only when the backup is complete."""
    state = inspect(location)
    if not state.revision:
        raise NotFound(f"there is no store at {location}.", hint="There is nothing to back up.")
    if folder.exists():
        raise BadRequest(f"{folder} already exists.", hint="Specify a new folder.")
    folder = folder.absolute()
    partial = folder.with_name(f".{folder.name}.{os.getpid()}.part")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        _check_free_space(folder.parent, state.size or 0)
        partial.mkdir(mode=0o700)
        manifest = _write_contents(
            location, state.revision, partial, extra_files or {}, on_progress
        )
        manifest.write(partial)
        fsync_path(partial)
        partial.rename(folder)
        fsync_path(folder.parent)
    except OSError as error:
        raise StoreError(
            f"the backup {folder} cannot be written: {error.strerror or error}.",
            hint="Check the disk and the permissions of the folder.",
        ) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return manifest


def _write_contents(
    location: StoreLocation,
    schema: str,
    folder: Path,
    extra_files: Mapping[str, bytes],
    on_progress: OnProgress,
) -> Manifest:
    for name, content in extra_files.items():
        write_file(folder / name, content)
    result = backup_postgres.CopyResult({}, {}, {})
    if location.path is not None:
        backup_sqlite.copy(location.path, folder / backup_sqlite.STORE_FILE, on_progress)
        tables = backup_sqlite.count_rows(folder / backup_sqlite.STORE_FILE)
        result = backup_postgres.CopyResult(tables, {}, {})
    else:
        result = backup_postgres.copy(location, folder, on_progress)
    return Manifest(
        format=FORMAT_VERSION,
        database=POSTGRES if location.path is None else SQLITE,
        schema=schema,
        dodona=__version__,
        made_at=datetime.now(UTC).isoformat(timespec="seconds"),
        files=dict(_list_files(folder)),
        tables=result.tables,
        columns=result.columns,
        sequences=result.sequences,
    )


def _list_files(folder: Path) -> Iterator[tuple[str, FileEntry]]:
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and name != MANIFEST_FILE:
            yield name, entry_of(path)


def verify(folder: Path) -> Iterator[CheckResult]:
    """Verify a backup, without a server and without changing it."""
    manifest = Manifest.read(folder)
    files = tuple(_file_problems(folder, manifest))
    yield CheckResult("files", files)
    if not files:
        driver = backup_sqlite if manifest.database == SQLITE else backup_postgres
        yield CheckResult("rows", tuple(driver.problems(folder, manifest)))
    try:
        check_revision(manifest.schema, f"the backup {folder}")
    except StoreError as error:
        yield CheckResult("schema", (error.message,))
    else:
        yield CheckResult("schema", ())


def _file_problems(folder: Path, manifest: Manifest) -> Iterator[str]:
    for name, expected in manifest.files.items():
        try:
            if entry_of(folder / name) != expected:
                yield f"{name} has changed since it was written"
        except OSError as error:
            yield f"{name} cannot be read: {error.strerror}"
    required = (
        backup_sqlite.STORE_FILE if manifest.database == SQLITE else backup_postgres.TABLES_FOLDER
    )
    if not any(name.split("/")[0] == required for name in manifest.files):
        yield f"{required} is missing"
    expected_names = {*manifest.files, MANIFEST_FILE}
    names = [p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()]
    yield from (f"{name} is not part of it" for name in sorted({*names} - expected_names))


def restore(
    folder: Path, location: StoreLocation, *, force: bool, on_progress: OnProgress
) -> str | None:
    """Replace the store with a backup; return the location of the previous store, if any.

    Nothing is changed unless the backup is intact and the store is not in use.
    """
    manifest = Manifest.read(folder)
    kind = POSTGRES if location.path is None else SQLITE
    if manifest.database != kind:
        raise BadRequest(
            f"the backup {folder} is for {manifest.database}, but the store {location} is not.",
            hint=f"Set [store] url to a {manifest.database} database.",
        )
    check_revision(manifest.schema, f"the backup {folder}")
    problems = [problem for check in verify(folder) for problem in check.problems]
    if problems:
        raise StoreError(
            f"the backup {folder} is damaged: {problems[0]}.", hint="Nothing was changed."
        )
    if not force and _exists(location):
        raise BadRequest(
            f"there is already a store at {location}.",
            hint="With --force, it is kept next to the restored one.",
        )
    if location.path is None:
        return backup_postgres.restore(folder, manifest, location, on_progress)
    _check_free_space(_nearest_existing(location.path.parent), manifest.bytes)
    previous = backup_sqlite.restore(folder, manifest, location.path, on_progress)
    return None if previous is None else str(previous)


def _exists(location: StoreLocation) -> bool:
    """Whether the store exists. It may be unreadable, which is a reason to restore a backup."""
    if location.path is not None:
        return location.path.exists() and location.path.stat().st_size > 0
    return bool(inspect(location).revision)


def _check_free_space(folder: Path, size: int) -> None:
    with suppress(OSError):
        free = shutil.disk_usage(folder).free
        if free < size:
            raise StoreError(
                f"the disk of {folder} has {free:,} bytes free, but {size:,} are needed.",
                hint="Free disk space, or choose another location. Nothing was changed.",
            )


def _nearest_existing(folder: Path) -> Path:
    """Return the folder, or its nearest existing parent."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder
