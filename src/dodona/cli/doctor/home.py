"""Python, the clock, Dodona's folder, and the keys in it."""

from __future__ import annotations

import os
import platform
import stat
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from time import time
from typing import Final

from dodona.app.config.config import Config
from dodona.cli.commands.project.config import NO_CONFIG_FILE
from dodona.cli.doctor.finding import Finding, chmod_fix, mkdir_fix, ok, warning, wrong

MIN_PYTHON: Final = (3, 11)
_RELEASE_TIME: Final = datetime(2026, 11, 1, tzinfo=UTC).timestamp()  # no clock can be before that
_MAX_CLOCK_AHEAD: Final = 10 * 365 * 86_400.0  # … nor that far behind it, in seconds


def run_checks(config: Config) -> Iterator[Finding]:
    yield check_python()
    yield check_clock(time())
    yield ok("config", str(config.origins.file or NO_CONFIG_FILE))
    yield check_home_folder(config.home)
    yield from check_credentials(config.home / "credentials")


def check_python() -> Finding:
    said = f"{platform.python_implementation()} {platform.python_version()}"
    if sys.version_info < MIN_PYTHON:
        wanted = ".".join(map(str, MIN_PYTHON))
        return wrong("python", f"{said} is too old.", f"Use Python {wanted} or newer.")
    return ok("python", said)


def check_clock(now: float) -> Finding:
    said = datetime.fromtimestamp(now, UTC).isoformat(timespec="seconds")
    if not _RELEASE_TIME <= now <= _RELEASE_TIME + _MAX_CLOCK_AHEAD:
        return wrong("clock", f"{said} cannot be.", "Set the clock: budgets count by the day.")
    return ok("clock", said)


def check_home_folder(home: Path) -> Finding:
    try:
        found = home.stat()
    except FileNotFoundError:
        return warning("home", f"{home} is not there yet.", "It is made on use.", mkdir_fix(home))
    except OSError as error:
        return wrong("home", f"{home}: {error.strerror}.", "Name another with DODONA_HOME.")
    if not stat.S_ISDIR(found.st_mode):
        return wrong("home", f"{home} is no folder.", "Name another with DODONA_HOME.")
    if not os.access(home, os.W_OK | os.X_OK):
        return wrong("home", f"{home} cannot be written.", f"chown or chmod {home}")
    if stat.S_IMODE(found.st_mode) & 0o077:
        mode = stat.S_IMODE(found.st_mode)
        return warning(
            "home",
            f"others may look into {home} (mode {mode:03o}).",
            f"chmod 700 {home}",
            chmod_fix(home, 0o700),
        )
    return ok("home", str(home))


def check_credentials(folder: Path) -> Iterator[Finding]:
    """Modes and owners; what is in the files is not read."""
    try:
        files = sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        yield wrong("credentials", f"{folder}: {error.strerror}.", f"chown or chmod {folder}")
        return
    closed = [(folder, 0o700), *((file, 0o600) for file in files if file.is_file())]
    faults = [fault for path, mode in closed if (fault := _check_private(path, mode))]
    yield from faults
    if not faults:
        count = f"{len(files)} file{'s' * (len(files) != 1)}"
        yield ok("credentials", f"{folder}: {count}, for you alone")


def _check_private(path: Path, mode: int) -> Finding | None:
    found = path.stat()
    if found.st_uid != os.geteuid():
        said = f"{path} belongs to someone else."
        return wrong("credentials", said, f"chown {os.geteuid()} {path}")
    if stat.S_IMODE(found.st_mode) & 0o077:
        said = f"others may read {path} (mode {stat.S_IMODE(found.st_mode):03o})."
        advice = f"chmod {mode:03o} {path}"
        return wrong("credentials", said, advice, chmod_fix(path, mode))
    return None
