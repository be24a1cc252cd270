"""The index of a vault: a file that can be thrown away and made anew at any time.

It holds a row per section, and is brought up to date by the stamps of the files before each use.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Final, TypeVar

from dodona.core.errors import DodonaError, ToolFailed
from dodona.tools.vault.files import Stamp, read_file, walk_notes
from dodona.tools.vault.finding import Hit, search
from dodona.tools.vault.index_file import is_damaged, opened, remove, transaction
from dodona.tools.vault.notes import Note, parse_note
from dodona.tools.vault.query import terms_of

MOST_NOTES: Final = 50_000
BATCH: Final = 500  # notes in a transaction: what a crash can cost, and others must wait for

_log = logging.getLogger(__name__)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Listed:
    path: str
    title: str
    tags: str


class Index:
    """One file for one vault. Its methods block: call them from a thread."""

    def __init__(self, root: Path, path: Path) -> None:
        self._root = root
        self._path = path
        self._lock = threading.Lock()

    def search(self, query: str, limit: int) -> list[Hit]:
        """The best sections for the words of a query."""
        return self._fresh(lambda db: search(db, terms_of(query), limit=limit))

    def notes(self) -> list[Listed]:
        """Every note, in the order of paths."""
        return self._fresh(
            lambda db: [
                Listed(*row)
                for row in db.execute("SELECT path, title, tags FROM notes ORDER BY path")
            ]
        )

    def _fresh(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """What `work` finds in an index that knows every note as it is now."""
        with self._lock:
            try:
                return self._used(work)
            except sqlite3.DatabaseError as error:
                if not is_damaged(error):
                    raise _unusable(error) from error
                _log.warning("the index %s is damaged (%s) and is made anew", self._path, error)
            remove(self._path)
            try:
                return self._used(work)
            except sqlite3.Error as error:
                raise _unusable(error) from error

    def _used(self, work: Callable[[sqlite3.Connection], T]) -> T:
        with opened(self._path) as db:
            _refresh(db, self._root)
            return work(db)


def _refresh(db: sqlite3.Connection, root: Path) -> None:
    """Take in what was changed, and drop what is gone; a renamed note is both."""
    there = dict(islice(walk_notes(root), MOST_NOTES))
    if len(there) == MOST_NOTES:
        _log.warning("only the first %d notes of the vault are indexed", MOST_NOTES)
    rows = db.execute("SELECT path, mtime_ns, size FROM notes")
    known = {path: Stamp(mtime_ns, size) for path, mtime_ns, size in rows}
    changed = [path for path in {**known, **there} if known.get(path) != there.get(path)]
    for at in range(0, len(changed), BATCH):
        with transaction(db):
            for path in changed[at : at + BATCH]:
                db.execute("DELETE FROM notes WHERE path = ?", (path,))
                db.execute("DELETE FROM sections WHERE path = ?", (path,))
                if path in there:
                    _take_in(db, root, path)


def _take_in(db: sqlite3.Connection, root: Path, path: str) -> None:
    with suppress(OSError, DodonaError):  # gone, a link by now, or not ours to read
        content = read_file(root, PurePosixPath(path).parts)
        _insert(db, parse_note(path, content.text), content.stamp)


def _insert(db: sqlite3.Connection, note: Note, stamp: Stamp) -> None:
    db.execute(
        "INSERT INTO notes VALUES (?, ?, ?, ?, ?)",
        (note.path, stamp.mtime_ns, stamp.size, note.title, " ".join(note.tags)),
    )
    labels = " ".join((*note.tags, *PurePosixPath(note.path).with_suffix("").parts))
    for section in note.sections:
        db.execute(
            "INSERT INTO sections (path, first, last, title, headings, body, labels)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                note.path,
                section.first,
                section.last,
                note.title,
                " > ".join(heading for heading in section.headings if heading != note.title),
                section.text,
                labels,
            ),
        )


def _unusable(error: sqlite3.Error) -> ToolFailed:
    _log.error("the index of the vault cannot be used: %s", error)
    return ToolFailed("the vault's index cannot be used at the moment.", hint="Try again later.")
