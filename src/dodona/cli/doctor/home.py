"""Checks of Python, the clock, the home folder and the credentials in it."""

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

from dodona.app.config.config import CREDENTIALS_FOLDER, Config
from dodona.cli.doctor.finding import Finding, chmod_fix, mkdir_fix, ok, warning, wrong
from dodona.cli.options import NO_CONFIG_FILE

MIN_PYTHON: Final = (3, 11)
_RELEASE_TIME: Final = datetime(2026, 11, 1, tzinfo=UTC).timestamp()  # an earlier time is wrong
_MAX_CLOCK_AHEAD: Final = 10 * 365 * 86_400.0  # seconds; a later time is wrong too


def run_checks(config: Config) -> Iterator[Finding]:
    """Run all checks of this module."""
    yield check_python()
    yield check_clock(time())
    yield ok("config", str(config.origins.file or NO_CONFIG_FILE))
    yield check_home_folder(config.home)
    yield from check_credentials(config.home / CREDENTIALS_FOLDER)


def check_python() -> Finding:
    """Check that Python is new enough."""
    version = f"{platform.python_implementation()} {platform.python_version()}"
    if sys.version_info < MIN_PYTHON:
        minimum = ".".join(map(str, MIN_PYTHON))
        return wrong("python", f"{version} is too old.", f"Use Python {minimum} or newer.")
    return ok("python", version)


def check_clock(now: float) -> Finding:
    """Check that the time is plausible."""
    text = datetime.fromtimestamp(now, UTC).isoformat(timespec="seconds")
    if not _RELEASE_TIME <= now <= _RELEASE_TIME + _MAX_CLOCK_AHEAD:
        return wrong("clock", f"{text} is not plausible.", "Set the clock: budgets depend on it.")
    return ok("clock", text)


def check_home_folder(home: Path) -> Finding:
    """Check that the home folder is writable and private."""
    try:
        home_stat = home.stat()
    except FileNotFoundError:
        return warning(
            "home", f"{home} does not exist yet.", "It is created on first use.", mkdir_fix(home)
        )
    except OSError as error:
        return wrong("home", f"{home}: {error.strerror}.", "Set DODONA_HOME to another folder.")
    if not stat.S_ISDIR(home_stat.st_mode):
        return wrong("home", f"{home} is not a folder.", "Set DODONA_HOME to another folder.")
    if not os.access(home, os.W_OK | os.X_OK):
        return wrong("home", f"{home} is not writable.", f"chown or chmod {home}")
    if stat.S_IMODE(home_stat.st_mode) & 0o077:
        mode = stat.S_IMODE(home_stat.st_mode)
        return warning(
            "home",
            f"other users can read {home} (mode {mode:03o}).",
            f"chmod 700 {home}",
            chmod_fix(home, 0o700),
        )
    return ok("home", str(home))


def check_credentials(folder: Path) -> Iterator[Finding]:
    """Check modes and owners; the contents of the files are not read."""
    try:
        files = sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        yield wrong("credentials", f"{folder}: {error.strerror}.", f"chown or chmod {folder}")
        return
    expected_modes = [(folder, 0o700), *((file, 0o600) for file in files if file.is_file())]
    problems = [problem for path, mode in expected_modes if (problem := _check_private(path, mode))]
    yield from problems
    if not problems:
        count = f"{len(files)} file{'s' * (len(files) != 1)}"
        yield ok("credentials", f"{folder}: {count}, readable only by you")


def _check_private(path: Path, mode: int) -> Finding | None:
    path_stat = path.stat()
    if path_stat.st_uid != os.geteuid():
        message = f"{path} belongs to another user."
        return wrong("credentials", message, f"chown {os.geteuid()} {path}")
    if stat.S_IMODE(path_stat.st_mode) & 0o077:
        message = f"other users can read {path} (mode {stat.S_IMODE(path_stat.st_mode):03o})."
        hint = f"chmod {mode:03o} {path}"
        return wrong("credentials", message, hint, chmod_fix(path, mode))
    return None
