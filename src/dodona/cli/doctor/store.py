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
from dodona.cli.doctor.finding import Finding, closing_mode, ok, removing, warning, wrong
from dodona.core.errors import ConfigError, DodonaError
from dodona.store.db.location import Location, locate
from dodona.store.db.migrate import NEWEST
from dodona.store.db.open import inspect as look_at
from dodona.store.db.owners import is_held
from dodona.store.integrity import check

SCARCE: Final = 1 << 30  # bytes of disk
TOO_LITTLE: Final = 100 << 20
_SKEW: Final = 3_600.0  # seconds that a clock may have been ahead


def look(config: Config, credentials: Credentials) -> Iterator[Finding]:
    try:
        location = locate(store_url(config, credentials))
    except ConfigError as error:
        yield wrong("store", error.message, error.hint)
        return
    yield from _opened(location)
    if location.path is not None:
        yield _disk(location.path)
        yield from _left_behind(location.path)


def _opened(location: Location) -> Iterator[Finding]:
    try:
        found = look_at(location)
        if not found.revision:
            yield ok("store", f"{location} is not there yet; it is made when it is opened")
            return
        problems = [problem for each in check(location) for problem in each.problems]
    except DodonaError as error:
        yield wrong("store", error.message, error.hint)
        return
    yield from _mode(location)
    if problems:
        more = f" and {len(problems) - 1} more" if len(problems) > 1 else ""
        yield wrong(
            "store",
            f"{location}: {problems[0]}{more}.",
            "See: dodona db check. Restore a backup: dodona backup restore PATH.",
        )
    elif found.revision != NEWEST:
        said = f"{location} has schema {found.revision}, this version {NEWEST}."
        yield warning("store", said, "Back it up, then: dodona db migrate.")
    else:
        yield ok("store", f"{location}, schema {found.revision}, whole")
    if location.path is not None:
        yield from _future(location.path)


def _mode(location: Location) -> Iterator[Finding]:
    path = location.path
    if path is not None and (mode := stat.S_IMODE(path.stat().st_mode)) & 0o077:
        said = f"others may read {path} (mode {mode:03o})."
        yield wrong("store", said, f"chmod 600 {path}", closing_mode(path, 0o600))


def _future(path: Path) -> Iterator[Finding]:
    """What was written later than now: the clock was, or is, wrong."""
    uri = f"file:{quote(str(path))}?mode=ro"
    with closing(sqlite3.connect(uri, uri=True, timeout=10)) as db:
        (newest,) = db.execute("SELECT max(created_at) FROM runs").fetchone()
    if newest is not None and newest > time() + _SKEW:
        when = datetime.fromtimestamp(newest, UTC).isoformat(timespec="seconds")
        yield warning(
            "clock", f"the store has a run of {when}, which is to come.", "Look at the clock."
        )


def _disk(path: Path) -> Finding:
    folder = path.parent
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    said = f"{free / 1e9:.1f} GB free at {folder}"
    if free < TOO_LITTLE:
        return wrong("disk", f"{said}: too little to write.", "Make room.")
    if free < SCARCE:
        return warning("disk", f"{said}.", "Make room before it is full.")
    return ok("disk", said)


def _left_behind(path: Path) -> Iterator[Finding]:
    """By those who were killed."""
    owners = Path(f"{path}-owners")
    left = [file for file in _files(owners) if not is_held(file)]
    left += [*path.parent.glob(f".{path.name}.restoring-*")] if path.parent.is_dir() else []
    for file in left:
        said = f"{file} was left by a process that was killed."
        yield warning("leftovers", said, f"rm {file}", removing(file))


def _files(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []
