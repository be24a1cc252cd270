"""The store: can it be opened, is it whole, is there room, has anybody left something behind?"""

from __future__ import annotations

import shutil
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from time import time
from typing import Final
from urllib.parse import quote

from dodona.app.config.config import Config
from dodona.app.config.store_url import store_url
from dodona.app.models.credentials import Credentials
from dodona.cli.doctor.finding import Finding, chmod_fix, ok, remove_fix, warning, wrong
from dodona.core.errors import ConfigError, DodonaError
from dodona.store.db.location import StoreLocation, parse_location
from dodona.store.db.migrate import NEWEST_REVISION
from dodona.store.db.open import inspect as look_at
from dodona.store.db.owners import is_locked
from dodona.store.integrity import check

LOW_DISK_BYTES: Final = 1 << 30  # bytes of disk
MIN_DISK_BYTES: Final = 100 << 20
_MAX_SKEW_SECONDS: Final = 3_600.0  # seconds that a clock may have been ahead


def run_checks(config: Config, credentials: Credentials) -> Iterator[Finding]:
    try:
        location = parse_location(store_url(config, credentials))
    except ConfigError as error:
        yield wrong("store", error.message, error.hint)
        return
    yield from _check_database(location)
    if location.path is not None:
        yield _check_disk(location.path)
        yield from _check_leftovers(location.path)


def _check_database(location: StoreLocation) -> Iterator[Finding]:
    try:
        found = look_at(location)
        if not found.revision:
            yield ok("store", f"{location} is not there yet; it is made when it is opened")
            return
        problems = [problem for each in check(location) for problem in each.problems]
    except DodonaError as error:
        yield wrong("store", error.message, error.hint)
        return
    yield from _check_mode(location)
    if problems:
        more = f" and {len(problems) - 1} more" if len(problems) > 1 else ""
        yield wrong(
            "store",
            f"{location}: {problems[0]}{more}.",
            "See: dodona db check. Restore a backup: dodona backup restore PATH.",
        )
    elif found.revision != NEWEST_REVISION:
        said = f"{location} has schema {found.revision}, this version {NEWEST_REVISION}."
        yield warning("store", said, "Back it up, then: dodona db migrate.")
    else:
        yield ok("store", f"{location}, schema {found.revision}, whole")
    if location.path is not None:
        yield from _check_future_runs(location.path)


def _check_mode(location: StoreLocation) -> Iterator[Finding]:
    path = location.path
    if path is not None and (mode := stat.S_IMODE(path.stat().st_mode)) & 0o077:
        said = f"others may read {path} (mode {mode:03o})."
        yield wrong("store", said, f"chmod 600 {path}", chmod_fix(path, 0o600))


def _check_future_runs(path: Path) -> Iterator[Finding]:
    """What was written later than now: the clock was, or is, wrong."""
    uri = f"file:{quote(str(path))}?mode=ro"
    with closing(sqlite3.connect(uri, uri=True, timeout=10)) as db:
        (newest,) = db.execute("SELECT max(created_at) FROM runs").fetchone()
    if newest is not None and newest > time() + _MAX_SKEW_SECONDS:
        when = datetime.fromtimestamp(newest, UTC).isoformat(timespec="seconds")
        yield warning(
            "clock", f"the store has a run of {when}, which is to come.", "Look at the clock."
        )


def _check_disk(path: Path) -> Finding:
    folder = path.parent
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    said = f"{free / 1e9:.1f} GB free at {folder}"
    if free < MIN_DISK_BYTES:
        return wrong("disk", f"{said}: too little to write.", "Make room.")
    if free < LOW_DISK_BYTES:
        return warning("disk", f"{said}.", "Make room before it is full.")
    return ok("disk", said)


def _check_leftovers(path: Path) -> Iterator[Finding]:
    """By those who were killed."""
    owners = Path(f"{path}-owners")
    left = [file for file in _list_files(owners) if not is_locked(file)]
    left += [*path.parent.glob(f".{path.name}.restoring-*")] if path.parent.is_dir() else []
    for file in left:
        said = f"{file} was left by a process that was killed."
        yield warning("leftovers", said, f"rm {file}", remove_fix(file))


def _list_files(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []
