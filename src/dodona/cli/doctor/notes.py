"""Checks of notes and code: access, index integrity and file watches."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Final
from urllib.parse import quote

from dodona.app.config.config import Config
from dodona.app.projects.code import code_folders
from dodona.app.projects.vaults import vault_folder
from dodona.cli.doctor.finding import Finding, mkdir_fix, ok, warning, wrong
from dodona.core.errors import DodonaError
from dodona.tools.skipped_names import describe_name
from dodona.tools.vault.notes.files import walk_notes

INOTIFY_FOLDER: Final = Path("/proc/sys/fs/inotify")
_MAX_NAMED: Final = 5  # skipped files
_MAX_FOLDERS: Final = 100_000  # counted at most
_MAX_WATCH_SHARE: Final = 0.8  # of the available watches; other programs need some too


def run_checks(config: Config) -> Iterator[Finding]:
    """Run all checks of this module."""
    yield from check_indexes(config.home / "indexes")
    default = config.home / "vault"
    if config.settings.vault.path is None and not default.is_dir():
        message = f"{default} does not exist yet."
        yield warning("vault", message, "It is created on first use.", mkdir_fix(default))
        return
    try:
        folder = vault_folder(config)
        skipped: list[str] = []
        notes = walk_notes(folder, on_skipped=lambda _, path: skipped.append(path))
        count = sum(1 for _ in notes)
        code = code_folders(config)
    except DodonaError as error:
        yield wrong("vault", error.message, error.hint)
        return
    except OSError as error:
        yield wrong("vault", f"{error.filename}: {error.strerror}.", "chown or chmod it.")
        return
    yield ok("vault", f"{folder}: {count:,} note{'s' * (count != 1)}")
    if skipped:
        names = ", ".join(map(describe_name, skipped[:_MAX_NAMED]))
        more = f" and {len(skipped) - _MAX_NAMED:,} more" * (len(skipped) > _MAX_NAMED)
        yield warning(
            "vault", f"skipped, because the name is not UTF-8: {names}{more}.", "Rename it."
        )
    yield from check_watches([folder, *code], INOTIFY_FOLDER)


def check_indexes(folder: Path) -> Iterator[Finding]:
    """Check the index files. A damaged index can be removed: it is rebuilt when needed."""
    for file in sorted(folder.glob("*.db")) if folder.is_dir() else ():
        try:
            uri = f"file:{quote(str(file))}?mode=ro"
            with closing(sqlite3.connect(uri, uri=True, timeout=10)) as db:
                (result,) = db.execute("PRAGMA quick_check(1)").fetchone()
        except sqlite3.DatabaseError as error:
            result = str(error)
        if result != "ok":
            message = f"{file} is damaged: {result}."
            yield warning("index", message, "It is rebuilt on next use.", _remove_index_fix(file))


def _remove_index_fix(file: Path) -> Callable[[], str]:
    def fix() -> str:
        for suffix in ("", "-wal", "-shm"):
            Path(f"{file}{suffix}").unlink(missing_ok=True)
        return f"Removed {file}; the next question rebuilds it."

    return fix


def check_watches(folders: list[Path], limits: Path) -> Iterator[Finding]:
    """Check the inotify limit of Linux: above it, changes to files go unnoticed."""
    try:
        limit = int((limits / "max_user_watches").read_text())
    except (OSError, ValueError):
        return  # not Linux: no such limit
    walked = (entry for folder in folders for entry in os.walk(folder))
    count = sum(1 for _ in islice(walked, _MAX_FOLDERS))
    if count > limit * _MAX_WATCH_SHARE:
        yield warning(
            "inotify",
            f"{count:,} folders to watch, but only {limit:,} watches are available.",
            f"sysctl fs.inotify.max_user_watches={max(4 * count, 65_536)}",
        )
    else:
        yield ok("inotify", f"{count:,} of {limit:,} watches")
