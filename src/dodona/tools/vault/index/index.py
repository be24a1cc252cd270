"""The index of a vault: a file that can be thrown away and made anew at any time.

It holds a row per section, and is brought up to date by the stamps of the files: before each use,
or as they change while somebody follows the folder.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from time import time_ns
from typing import Final, TypeAlias, TypeVar

from dodona.core.domain.knowledge.notes import Backlink, NoteHit, NoteListed
from dodona.core.errors import AccessDenied, ToolFailed, ToolRetry
from dodona.tools.rebuildable_db import Identity, Kind, Throwaway, snapshot, transaction
from dodona.tools.vault.index import backlink_query as linked
from dodona.tools.vault.index import index_rows as rows
from dodona.tools.vault.index import vocabulary
from dodona.tools.vault.index.search_sql import Finder
from dodona.tools.vault.notes.files import MOST_BYTES, Stamp, read_file, walk_notes
from dodona.tools.vault.notes.paths import DEEPEST, is_note, is_usable

# `names` of a note are its title and aliases, `labels` its tags and the parts of its path. `terms`
# are the words of the index: parts of words are looked up in them, as an index of trigrams took
# three times as long to make, and three times the space. `words` holds no text of its own; what is
# taken out of it must be told as it was put in.
_SCHEMA = """
CREATE TABLE notes (
    id INTEGER PRIMARY KEY, path TEXT UNIQUE, name TEXT, mtime_ns INT, size INT, is_settled INT,
    title TEXT, tags TEXT, names TEXT, labels TEXT
);
CREATE INDEX notes_name ON notes (name);
CREATE INDEX notes_mtime ON notes (mtime_ns);
CREATE TABLE aliases (note INT, name TEXT);
CREATE INDEX aliases_note ON aliases (note);
CREATE INDEX aliases_name ON aliases (name);
CREATE TABLE links (note INT, line INT, text TEXT, target TEXT, name TEXT);
CREATE INDEX links_note ON links (note);
CREATE INDEX links_name ON links (name);
CREATE TABLE sections (
    id INTEGER PRIMARY KEY, note INT, first INT, last INT, headings TEXT, body TEXT
);
CREATE INDEX sections_note ON sections (note);
CREATE VIRTUAL TABLE words USING fts5 (
    names, headings, body, labels, content='', tokenize='porter unicode61 remove_diacritics 2'
);
CREATE VIRTUAL TABLE vocabulary USING fts5vocab (words, row);
CREATE TABLE terms (id INTEGER PRIMARY KEY, term TEXT UNIQUE);
CREATE TABLE state (last_section INT, last_learnt INT, sections INT);
INSERT INTO state VALUES (0, 0, 0);
"""

KIND: Final = Kind(_SCHEMA, application=0x444F444E, version=3)  # "DODN"


MOST_NOTES: Final = 200_000
MOST_TAKEN: Final = 1_000  # notes to look at one by one; for more, the whole folder is looked at
BATCH: Final = 500  # notes in a transaction: what a crash can cost, and others must wait for
BATCH_BYTES: Final = 8_000_000
MANY: Final = 1_000  # notes after which the index is put in order
# A file that was written this shortly before may be written again without a change of its stamp.
UNSETTLED_NS: Final = 100_000_000

Progress: TypeAlias = Callable[[int, int], None]

_log = logging.getLogger(__name__)
T = TypeVar("T")


class Index:
    """One file for one vault. Its methods block: call them from threads, as many as you like.

    While `is_followed`, somebody tells what has changed, and nothing else is looked at before a
    query.
    """

    def __init__(
        self, root: Path, path: Path, *, is_followed: Callable[[], bool] = lambda: False
    ) -> None:
        self._root = root
        self._is_followed = is_followed
        self._file = Throwaway(path, KIND)
        self._finder = Finder()
        self._writing = threading.Lock()
        self._closing = threading.Event()
        self._caught_up: Identity | None = None  # the file that has been up to date once

    def refresh(self, progress: Progress | None = None) -> None:
        """Take in what was changed, and drop what is gone; a renamed note is both.

        `progress` is told how many of the changed notes are done, and of how many. When it raises,
        nothing more is done; what is done stays so.
        """
        self._use(lambda db: self._catch_up(db, progress))

    def take(self, paths: Iterable[str]) -> None:
        """Look again at these notes, or at those in these folders."""
        asked = list(islice(paths, MOST_TAKEN + 1))
        folders = [path for path in asked if not is_note(path)]
        if len(asked) > MOST_TAKEN or any((self._root / folder).is_dir() for folder in folders):
            self.refresh()
        else:
            self._use(lambda db: self._take(db, asked))

    def search(self, query: str, limit: int) -> list[NoteHit]:
        """The best sections for the words of a query; scores are from 0 to 1."""
        return self._fresh(
            lambda db: self._finder.search(db, query, limit=limit, of=self._file.identity())
        )

    def relevant(self, query: str, limit: int) -> list[NoteListed]:
        """The notes that fit a query best, then those that were changed last."""

        def found(db: sqlite3.Connection) -> list[NoteListed]:
            best = self._finder.paths(db, query, limit=limit, of=self._file.identity())
            newest = (row[0] for row in db.execute(_NEWEST, (limit,)))
            paths = list(islice(dict.fromkeys([*best, *newest]), limit))
            marks = ",".join("?" * len(paths))
            listed = map(_listed, db.execute(f"{_LISTED} WHERE path IN ({marks})", paths))
            by_path = {note.path: note for note in listed}
            return [by_path[path] for path in paths]

        return self._fresh(found)

    def notes(self) -> list[NoteListed]:
        """Every note, in the order of paths."""
        return self._fresh(
            lambda db: [_listed(row) for row in db.execute(f"{_LISTED} ORDER BY path")]
        )

    def backlinks(self, path: str) -> list[Backlink]:
        """The lines that link to a note, in the order of paths."""
        return self._fresh(lambda db: linked.backlinks(db, path))

    def linking(self, path: str) -> list[str]:
        """The notes with a link to a note."""
        return self._fresh(lambda db: linked.linking(db, path))

    def tags(self) -> list[tuple[str, int]]:
        """Every tag with how many notes have it, the most frequent first; case does not matter."""
        return self._fresh(_counted)

    def close(self) -> None:
        """Let nobody catch up any further, and close the file when nobody uses it any more."""
        self._closing.set()
        try:
            self._file.close()
        finally:
            # What is there next time may be another file, with the same number.
            self._caught_up = None
            self._finder = Finder()
            self._closing.clear()

    def _fresh(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """What `work` finds in an index that knows every note as it is now."""

        def found(db: sqlite3.Connection) -> T:
            if not self._is_followed() or self._caught_up != self._file.identity():
                self._catch_up(db)
            with snapshot(db):
                return work(db)

        return self._use(found)

    def _use(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            return self._file.use(work)
        except sqlite3.Error as error:
            _log.error("the index of the vault cannot be used: %s", error)
            raise ToolFailed(
                "the vault's index cannot be used at the moment.", hint="Try again later."
            ) from error

    def _catch_up(self, db: sqlite3.Connection, progress: Progress | None = None) -> None:
        with self._writing:
            self._refresh(db, progress or _nobody)
            self._caught_up = self._file.identity()

    def _refresh(self, db: sqlite3.Connection, progress: Progress) -> None:
        there = dict(islice(walk_notes(self._root), MOST_NOTES))
        if len(there) == MOST_NOTES:
            _log.warning("only the first %d notes of the vault are indexed", MOST_NOTES)
        known = rows.known_stamps(db)
        gone = [path for path in known if path not in there]
        changed = [path for path, stamp in there.items() if known.get(path) != stamp]
        changed.sort(key=lambda path: there[path].mtime_ns)  # so the newest come last
        for batch in _batches(gone, there):
            with transaction(db):
                rows.drop(db, batch)
        self._put(db, _batches(changed, there), lambda done: progress(done, len(changed)))
        if len(changed) >= MANY:
            db.execute("INSERT INTO words (words) VALUES ('optimize')")

    def _take(self, db: sqlite3.Connection, paths: Sequence[str]) -> None:
        with self._writing:
            notes = {path for path in paths if _is_in_vault(path)}
            for path in paths:
                notes |= rows.below(db, path)
            self._put(db, [sorted(notes)])

    def _put(
        self,
        db: sqlite3.Connection,
        batches: Iterable[Sequence[str]],
        progress: Callable[[int], None] = lambda done: None,
    ) -> None:
        """Read notes, and make the index know them as they were read.

        The next ones are read while those before are indexed, for which SQLite needs no Python.
        """

        def told(count: int) -> None:
            if self._closing.is_set():
                raise ToolFailed("the vault is closed.")
            progress(count)

        done = 0
        with ThreadPoolExecutor(1, "dodona-index") as beside:
            before: Future[None] | None = None
            for batch in batches:
                found = {path: self._read(path) for path in batch}
                if before is not None:
                    before.result()
                    told(done)
                before = beside.submit(_finish, db, *_begun(db, found))
                done += len(batch)
            if before is not None:
                before.result()
                progress(done)
        with transaction(db):
            vocabulary.learn(db)

    def _read(self, path: str) -> rows.Taken | None:
        """A note as it is now; None when it is gone, a link by now, or not ours to read."""
        now = time_ns()
        try:
            content = read_file(self._root, path.split("/"))
        except (OSError, AccessDenied, ToolRetry):
            return None
        is_settled = abs(now - content.stamp.mtime_ns) > UNSETTLED_NS
        return rows.taken(path, content, is_settled=is_settled)


_LISTED: Final = "SELECT path, title, tags, mtime_ns, size FROM notes"
_NEWEST: Final = "SELECT path FROM notes ORDER BY mtime_ns DESC, path LIMIT ?"


def _listed(row: tuple[str, str, str, int, int]) -> NoteListed:
    path, title, tags, mtime_ns, size = row
    return NoteListed(path, title, rows.tags_in(tags), mtime_ns / 1e9, size)


def _counted(db: sqlite3.Connection) -> list[tuple[str, int]]:
    spellings: dict[str, Counter[str]] = {}
    for (column,) in db.execute("SELECT tags FROM notes WHERE tags != ''"):
        for key, tag in {tag.casefold(): tag for tag in rows.tags_in(column)}.items():
            spellings.setdefault(key, Counter())[tag] += 1
    counted = [(names.most_common(1)[0][0], names.total()) for names in spellings.values()]
    return sorted(counted, key=lambda each: (-each[1], each[0]))


def _begun(db: sqlite3.Connection, found: Mapping[str, rows.Taken | None]) -> tuple[int, ExitStack]:
    """The rows of some notes in a transaction that is not finished; from which section on."""
    with ExitStack() as stack:
        stack.enter_context(transaction(db))
        rows.drop(db, [path for path, note in found.items() if note is None])
        # Another process may have been faster.
        fresh = [note for note in found.values() if note and not rows.is_known(db, note)]
        return rows.put(db, fresh), stack.pop_all()


def _finish(db: sqlite3.Connection, first: int, stack: ExitStack) -> None:
    with stack:
        rows.index_words(db, first)


def _batches(paths: Sequence[str], stamps: Mapping[str, Stamp]) -> Iterator[list[str]]:
    batch: list[str] = []
    size = 0
    for path in paths:
        batch.append(path)
        size += min(stamps[path].size, MOST_BYTES) if path in stamps else 0
        if len(batch) == BATCH or size > BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _is_in_vault(path: str) -> bool:
    parts = path.split("/")
    return is_note(parts[-1]) and len(parts) <= DEEPEST and all(map(is_usable, parts))


def _nobody(done: int, total: int) -> None:
    """Nobody wants to know."""
