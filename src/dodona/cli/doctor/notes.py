"""Notes and code: can they be read, are their indexes whole, can changes be seen?"""

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
from dodona.tools.vault.notes.files import walk_notes

INOTIFY_FOLDER: Final = Path("/proc/sys/fs/inotify")
_MAX_FOLDERS: Final = 100_000  # are counted
_MAX_WATCH_SHARE: Final = 0.8  # of the watches there are, others need some too


def run_checks(config: Config) -> Iterator[Finding]:
    yield from check_indexes(config.home / "indexes")
    usual = config.home / "vault"
    if config.settings.vault.path is None and not usual.is_dir():
        yield warning("vault", f"{usual} is not there yet.", "It is made on use.", mkdir_fix(usual))
        return
    try:
        folder = vault_folder(config)
        count = sum(1 for _ in walk_notes(folder))
        code = code_folders(config)
    except DodonaError as error:
        yield wrong("vault", error.message, error.hint)
        return
    except OSError as error:
        yield wrong("vault", f"{error.filename}: {error.strerror}.", "chown or chmod it.")
        return
    yield ok("vault", f"{folder}: {count:,} note{'s' * (count != 1)}")
    yield from check_watches([folder, *code], INOTIFY_FOLDER)


def check_indexes(folder: Path) -> Iterator[Finding]:
    """They can be thrown away: what is damaged is made again when it is needed."""
    for file in sorted(folder.glob("*.db")) if folder.is_dir() else ():
        try:
            uri = f"file:{quote(str(file))}?mode=ro"
            with closing(sqlite3.connect(uri, uri=True, timeout=10)) as db:
                (found,) = db.execute("PRAGMA quick_check(1)").fetchone()
        except sqlite3.DatabaseError as error:
            found = str(error)
        if found != "ok":
            said = f"{file} is damaged: {found}."
            yield warning("index", said, "It is made anew on use.", _remove_index_fix(file))


def _remove_index_fix(file: Path) -> Callable[[], str]:
    def mend() -> str:
        for suffix in ("", "-wal", "-shm"):
            Path(f"{file}{suffix}").unlink(missing_ok=True)
        return f"{file} is removed; the next question makes it anew."

    return mend


def check_watches(folders: list[Path], limits: Path) -> Iterator[Finding]:
    """Linux watches folders, and of those a number: past it changes are not seen."""
    try:
        most = int((limits / "max_user_watches").read_text())
    except (OSError, ValueError):
        return  # another system, which needs none
    walked = (entry for folder in folders for entry in os.walk(folder))
    count = sum(1 for _ in islice(walked, _MAX_FOLDERS))
    if count > most * _MAX_WATCH_SHARE:
        yield warning(
            "inotify",
            f"{count:,} folders are to be watched, and {most:,} can be.",
            f"sysctl fs.inotify.max_user_watches={max(4 * count, 65_536)}",
        )
    else:
        yield ok("inotify", f"{count:,} of {most:,} watches")
