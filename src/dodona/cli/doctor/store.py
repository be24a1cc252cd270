"""Checks of the store: schema, integrity, permissions, disk space and leftover files."""

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
from dodona.store.db.open import inspect
from dodona.store.db.owners import is_locked
from dodona.store.integrity import check

LOW_DISK_BYTES: Final = 1 << 30
MIN_DISK_BYTES: Final = 100 << 20
_MAX_SKEW_SECONDS: Final = 3_600.0  # tolerated for runs dated in the future


def run_checks(config: Config, credentials: Credentials) -> Iterator[Finding]:
    """Run all checks of this module."""
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
        state = inspect(location)
        if not state.revision:
            yield ok("store", f"{location} does not exist yet; it is created on first use")
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
            "See: dodona db check. To restore a backup: dodona backup restore PATH.",
        )
    elif state.revision != NEWEST_REVISION:
        message = f"{location} has schema {state.revision}; this version uses {NEWEST_REVISION}."
        yield warning("store", message, "Back it up, then run: dodona db migrate.")
    else:
        yield ok("store", f"{location}, schema {state.revision}, intact")
    if location.path is not None:
        yield from _check_future_runs(location.path)


def _check_mode(location: StoreLocation) -> Iterator[Finding]:
    path = location.path
    if path is not None and (mode := stat.S_IMODE(path.stat().st_mode)) & 0o077:
        message = f"other users can read {path} (mode {mode:03o})."
        yield wrong("store", message, f"chmod 600 {path}", chmod_fix(path, 0o600))


def _check_future_runs(path: Path) -> Iterator[Finding]:
    """Find runs dated in the future: the clock is or was wrong."""
    uri = f"file:{quote(str(path))}?mode=ro"
    with closing(sqlite3.connect(uri, uri=True, timeout=10)) as db:
        (newest,) = db.execute("SELECT max(created_at) FROM runs").fetchone()
    if newest is not None and newest > time() + _MAX_SKEW_SECONDS:
        when = datetime.fromtimestamp(newest, UTC).isoformat(timespec="seconds")
        yield warning("clock", f"the store has a run from the future ({when}).", "Check the clock.")


def _check_disk(path: Path) -> Finding:
    folder = path.parent
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    message = f"{free / 1e9:.1f} GB free at {folder}"
    if free < MIN_DISK_BYTES:
        return wrong("disk", f"{message}: not enough.", "Free some disk space.")
    if free < LOW_DISK_BYTES:
        return warning("disk", f"{message}.", "Free some disk space soon.")
    return ok("disk", message)


def _check_leftovers(path: Path) -> Iterator[Finding]:
    """Find files that killed processes left behind."""
    owners = Path(f"{path}-owners")
    leftovers = [file for file in _list_files(owners) if not is_locked(file)]
    leftovers += [*path.parent.glob(f".{path.name}.restoring-*")] if path.parent.is_dir() else []
    for file in leftovers:
        message = f"{file} was left behind by a killed process."
        yield warning("leftovers", message, f"rm {file}", remove_fix(file))


def _list_files(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []
