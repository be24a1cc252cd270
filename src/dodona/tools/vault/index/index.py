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

from dodona.core.domain.knowledge.notes import Backlink, NoteHit, NoteSummary
from dodona.core.errors import AccessDenied, ToolFailed, ToolRetry
from dodona.tools.rebuildable_db import (
    DatabaseFormat,
    FileIdentity,
    RebuildableDatabase,
    snapshot,
    transaction,
)
from dodona.tools.vault.index import backlink_query as linked
from dodona.tools.vault.index import index_rows as rows
from dodona.tools.vault.index import vocabulary
from dodona.tools.vault.index.search_sql import SectionSearcher
from dodona.tools.vault.notes.files import MAX_NOTE_BYTES, NoteStamp, read_file, walk_notes
from dodona.tools.vault.notes.paths import MAX_DEPTH, is_allowed_name, is_note

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

KIND: Final = DatabaseFormat(_SCHEMA, application_id=0x444F444E, version=3)  # "DODN"


MAX_NOTES: Final = 200_000
MAX_SINGLE_UPDATES: Final = (
    1_000  # notes to look at one by one; for more, the whole folder is looked at
)
BATCH_SIZE: Final = 500  # notes in a transaction: what a crash can cost, and others must wait for
BATCH_BYTES: Final = 8_000_000
OPTIMIZE_THRESHOLD: Final = 1_000  # notes after which the index is put in order
# A file that was written this shortly before may be written again without a change of its stamp.
MTIME_SETTLE_NS: Final = 100_000_000

Progress: TypeAlias = Callable[[int, int], None]

_log = logging.getLogger(__name__)
T = TypeVar("T")


class VaultIndex:
    """One file for one vault. Its methods block: call them from threads, as many as you like.

    While `is_followed`, somebody tells what has changed, and nothing else is looked at before a
    query.
    """

    def __init__(
        self, root: Path, path: Path, *, is_watched: Callable[[], bool] = lambda: False
    ) -> None:
        self._root = root
        self._is_watched = is_watched
        self._file = RebuildableDatabase(path, KIND)
        self._searcher = SectionSearcher()
        self._write_lock = threading.Lock()
        self._closing = threading.Event()
        self._refreshed_identity: FileIdentity | None = (
            None  # the file that has been up to date once
        )

    def refresh(self, progress: Progress | None = None) -> None:
        """Take in what was changed, and drop what is gone; a renamed note is both.

        `progress` is told how many of the changed notes are done, and of how many. When it raises,
        nothing more is done; what is done stays so.
        """
        self._with_connection(lambda db: self._catch_up(db, progress))

    def reindex(self, paths: Iterable[str]) -> None:
        """Look again at these notes, or at those in these folders."""
        asked = list(islice(paths, MAX_SINGLE_UPDATES + 1))
        folders = [path for path in asked if not is_note(path)]
        if len(asked) > MAX_SINGLE_UPDATES or any(
            (self._root / folder).is_dir() for folder in folders
        ):
            self.refresh()
        else:
            self._with_connection(lambda db: self._reindex(db, asked))

    def search(self, query: str, limit: int) -> list[NoteHit]:
        """The best sections for the words of a query; scores are from 0 to 1."""
        return self._query_fresh(
            lambda db: self._searcher.search(db, query, limit=limit, identity=self._file.identity())
        )

    def find_relevant(self, query: str, limit: int) -> list[NoteSummary]:
        """The notes that fit a query best, then those that were changed last."""

        def found(db: sqlite3.Connection) -> list[NoteSummary]:
            best = self._searcher.search_paths(
                db, query, limit=limit, identity=self._file.identity()
            )
            newest = (row[0] for row in db.execute(_NEWEST_SQL, (limit,)))
            paths = list(islice(dict.fromkeys([*best, *newest]), limit))
            marks = ",".join("?" * len(paths))
            listed = map(_note_from_row, db.execute(f"{_LIST_SQL} WHERE path IN ({marks})", paths))
            by_path = {note.path: note for note in listed}
            return [by_path[path] for path in paths]

        return self._query_fresh(found)

    def notes(self) -> list[NoteSummary]:
        """Every note, in the order of paths."""
        return self._query_fresh(
            lambda db: [_note_from_row(row) for row in db.execute(f"{_LIST_SQL} ORDER BY path")]
        )

    def backlinks(self, path: str) -> list[Backlink]:
        """The lines that link to a note, in the order of paths."""
        return self._query_fresh(lambda db: linked.find_backlinks(db, path))

    def notes_linking_to(self, path: str) -> list[str]:
        """The notes with a link to a note."""
        return self._query_fresh(lambda db: linked.notes_linking_to(db, path))

    def tags(self) -> list[tuple[str, int]]:
        """Every tag with how many notes have it, the most frequent first; case does not matter."""
        return self._query_fresh(_count_tags)

    def close(self) -> None:
        """Let nobody catch up any further, and close the file when nobody uses it any more."""
        self._closing.set()
        try:
            self._file.close()
        finally:
            # What is there next time may be another file, with the same number.
            self._refreshed_identity = None
            self._searcher = SectionSearcher()
            self._closing.clear()

    def _query_fresh(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """What `work` finds in an index that knows every note as it is now."""

        def found(db: sqlite3.Connection) -> T:
            if not self._is_watched() or self._refreshed_identity != self._file.identity():
                self._catch_up(db)
            with snapshot(db):
                return work(db)

        return self._with_connection(found)

    def _with_connection(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            return self._file.run(work)
        except sqlite3.Error as error:
            _log.error("the index of the vault cannot be used: %s", error)
            raise ToolFailed(
                "the vault's index cannot be used at the moment.", hint="Try again later."
            ) from error

    def _catch_up(self, db: sqlite3.Connection, progress: Progress | None = None) -> None:
        with self._write_lock:
            self._refresh(db, progress or _ignore_progress)
            self._refreshed_identity = self._file.identity()

    def _refresh(self, db: sqlite3.Connection, progress: Progress) -> None:
        there = dict(islice(walk_notes(self._root), MAX_NOTES))
        if len(there) == MAX_NOTES:
            _log.warning("only the first %d notes of the vault are indexed", MAX_NOTES)
        known = rows.indexed_stamps(db)
        gone = [path for path in known if path not in there]
        changed = [path for path, stamp in there.items() if known.get(path) != stamp]
        changed.sort(key=lambda path: there[path].mtime_ns)  # so the newest come last
        for batch in _batches(gone, there):
            with transaction(db):
                rows.delete_notes(db, batch)
        self._index_batches(db, _batches(changed, there), lambda done: progress(done, len(changed)))
        if len(changed) >= OPTIMIZE_THRESHOLD:
            db.execute("INSERT INTO words (words) VALUES ('optimize')")

    def _reindex(self, db: sqlite3.Connection, paths: Sequence[str]) -> None:
        with self._write_lock:
            notes = {path for path in paths if _is_in_vault(path)}
            for path in paths:
                notes |= rows.notes_below(db, path)
            self._index_batches(db, [sorted(notes)])

    def _index_batches(
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
                found = {path: self._read_note(path) for path in batch}
                if before is not None:
                    before.result()
                    told(done)
                before = beside.submit(_finish_batch, db, *_begin_batch(db, found))
                done += len(batch)
            if before is not None:
                before.result()
                progress(done)
        with transaction(db):
            vocabulary.add_new_terms(db)

    def _read_note(self, path: str) -> rows.ParsedNote | None:
        """A note as it is now; None when it is gone, a link by now, or not ours to read."""
        now = time_ns()
        try:
            content = read_file(self._root, path.split("/"))
        except (OSError, AccessDenied, ToolRetry):
            return None
        is_settled = abs(now - content.stamp.mtime_ns) > MTIME_SETTLE_NS
        return rows.parse_content(path, content, is_settled=is_settled)


_LIST_SQL: Final = "SELECT path, title, tags, mtime_ns, size FROM notes"
_NEWEST_SQL: Final = "SELECT path FROM notes ORDER BY mtime_ns DESC, path LIMIT ?"


def _note_from_row(row: tuple[str, str, str, int, int]) -> NoteSummary:
    path, title, tags, mtime_ns, size = row
    return NoteSummary(path, title, rows.split_tags(tags), mtime_ns / 1e9, size)


def _count_tags(db: sqlite3.Connection) -> list[tuple[str, int]]:
    spellings: dict[str, Counter[str]] = {}
    for (column,) in db.execute("SELECT tags FROM notes WHERE tags != ''"):
        for key, tag in {tag.casefold(): tag for tag in rows.split_tags(column)}.items():
            spellings.setdefault(key, Counter())[tag] += 1
    counted = [(names.most_common(1)[0][0], names.total()) for names in spellings.values()]
    return sorted(counted, key=lambda each: (-each[1], each[0]))


def _begin_batch(
    db: sqlite3.Connection, notes: Mapping[str, rows.ParsedNote | None]
) -> tuple[int, ExitStack]:
    """The rows of some notes in a transaction that is not finished; from which section on."""
    with ExitStack() as stack:
        stack.enter_context(transaction(db))
        rows.delete_notes(db, [path for path, note in notes.items() if note is None])
        # Another process may have been faster.
        fresh = [note for note in notes.values() if note and not rows.is_indexed(db, note)]
        return rows.insert_notes(db, fresh), stack.pop_all()


def _finish_batch(db: sqlite3.Connection, first: int, stack: ExitStack) -> None:
    with stack:
        rows.index_words(db, first)


def _batches(paths: Sequence[str], stamps: Mapping[str, NoteStamp]) -> Iterator[list[str]]:
    batch: list[str] = []
    size = 0
    for path in paths:
        batch.append(path)
        size += min(stamps[path].size, MAX_NOTE_BYTES) if path in stamps else 0
        if len(batch) == BATCH_SIZE or size > BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _is_in_vault(path: str) -> bool:
    parts = path.split("/")
    return is_note(parts[-1]) and len(parts) <= MAX_DEPTH and all(map(is_allowed_name, parts))


def _ignore_progress(done: int, total: int) -> None:
    """Nobody wants to know."""
