"""Backups of a store: made while it is used, looked over without a server, put back whole.

A backup is a folder: the data, a copy of whatever the caller adds, and a manifest with checksums.
Of SQLite the data is one file, of PostgreSQL a file for each table. Each is restored into a
database of its own kind.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from dodona import __version__
from dodona.core.errors import BadRequest, NotFound, StoreError
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
from dodona.store.db.migrate import reject_newer
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
    """Make a backup of what is committed now. The folder is there when all of it is."""
    found = inspect(location)
    if not found.revision:
        raise NotFound(f"there is no store at {location}.", hint="There is nothing to back up.")
    if folder.exists():
        raise BadRequest(f"{folder} is there already.", hint="Name a folder that is not.")
    folder = folder.absolute()
    beside = folder.with_name(f".{folder.name}.{os.getpid()}.part")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        _check_free_space(folder.parent, found.size or 0)
        beside.mkdir(mode=0o700)
        manifest = _write_contents(location, found.revision, beside, extra_files or {}, on_progress)
        manifest.write(beside)
        fsync_path(beside)
        beside.rename(folder)
        fsync_path(folder.parent)
    except OSError as error:
        raise StoreError(
            f"the backup {folder} cannot be written: {error.strerror or error}.",
            hint="Look at the disk and at the permissions of its folder.",
        ) from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)
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
    copied = backup_postgres.CopyResult({}, {}, {})
    if location.path is not None:
        backup_sqlite.copy(location.path, folder / backup_sqlite.STORE_FILE, on_progress)
        tables = backup_sqlite.count_rows(folder / backup_sqlite.STORE_FILE)
        copied = backup_postgres.CopyResult(tables, {}, {})
    else:
        copied = backup_postgres.copy(location, folder, on_progress)
    return Manifest(
        format=FORMAT_VERSION,
        database=POSTGRES if location.path is None else SQLITE,
        schema=schema,
        dodona=__version__,
        made_at=datetime.now(UTC).isoformat(timespec="seconds"),
        files=dict(_list_files(folder)),
        tables=copied.tables,
        columns=copied.columns,
        sequences=copied.sequences,
    )


def _list_files(folder: Path) -> Iterator[tuple[str, FileEntry]]:
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and name != MANIFEST_FILE:
            yield name, entry_of(path)


def verify(folder: Path) -> Iterator[CheckResult]:
    """Look a backup over, without a server and without changing it."""
    manifest = Manifest.read(folder)
    files = tuple(_file_problems(folder, manifest))
    yield CheckResult("files", files)
    if not files:
        how = backup_sqlite if manifest.database == SQLITE else backup_postgres
        yield CheckResult("rows", tuple(how.problems(folder, manifest)))
    yield CheckResult("schema", tuple(_schema_problems(manifest, folder)))


def _file_problems(folder: Path, manifest: Manifest) -> Iterator[str]:
    for name, expected in manifest.files.items():
        try:
            if entry_of(folder / name) != expected:
                yield f"{name} is not as it was written"
        except OSError as error:
            yield f"{name} cannot be read: {error.strerror}"
    needed = (
        backup_sqlite.STORE_FILE if manifest.database == SQLITE else backup_postgres.TABLES_FOLDER
    )
    if not any(name.split("/")[0] == needed for name in manifest.files):
        yield f"{needed} is missing"
    known = {*manifest.files, MANIFEST_FILE}
    strange = [p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()]
    yield from (f"{name} does not belong to it" for name in sorted({*strange} - known))


def _schema_problems(manifest: Manifest, folder: Path) -> Iterator[str]:
    try:
        reject_newer(manifest.schema, str(folder))
    except StoreError as error:
        yield error.message


def restore(
    folder: Path, location: StoreLocation, *, force: bool, on_progress: OnProgress
) -> str | None:
    """Make a backup the store; where that is kept which was there before.

    Nothing is changed unless the backup is whole and nobody uses the store.
    """
    manifest = Manifest.read(folder)
    kind = POSTGRES if location.path is None else SQLITE
    if manifest.database != kind:
        raise BadRequest(
            f"the backup {folder} is of {manifest.database}, and the store {location} is not.",
            hint="Name a store of its own kind with [store] url.",
        )
    wrong = [problem for check in verify(folder) for problem in check.problems]
    if wrong:
        raise StoreError(
            f"the backup {folder} is damaged: {wrong[0]}.", hint="Nothing was changed."
        )
    if not force and _exists(location):
        raise BadRequest(
            f"there is a store at {location} already.",
            hint="With --force it is kept beside the restored one.",
        )
    if location.path is None:
        return backup_postgres.restore(folder, manifest, location, on_progress)
    _check_free_space(_nearest_existing(location.path.parent), manifest.bytes)
    kept = backup_sqlite.restore(folder, manifest, location.path, on_progress)
    return None if kept is None else str(kept)


def _exists(location: StoreLocation) -> bool:
    """Also when it cannot be read: that may be why it is to be replaced."""
    if location.path is not None:
        return location.path.exists() and location.path.stat().st_size > 0
    return bool(inspect(location).revision)


def _check_free_space(folder: Path, size: int) -> None:
    with suppress(OSError):
        free = shutil.disk_usage(folder).free
        if free < size:
            raise StoreError(
                f"the disk of {folder} has {free:,} bytes, and {size:,} are needed.",
                hint="Make room, or choose another place. Nothing was changed.",
            )


def _nearest_existing(folder: Path) -> Path:
    """The folder, or the first above it that there is."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder
