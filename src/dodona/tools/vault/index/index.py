"""The index of a vault: a file that can be deleted and rebuilt at any time.

It has one row per section. It is refreshed by file stamps before each use, or follows reported
changes while the folder is watched.
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

from msgspec.structs import replace

from dodona.core.domain.knowledge.notes import Backlink, NoteHit, NoteSummary, NoteTag
from dodona.core.domain.trust import Mark, Marks, merge_marks, sort_marks
from dodona.core.errors import AccessDenied, ToolFailed, ToolRetry
from dodona.core.json_document import Timestamp
from dodona.tools.index_follower import IndexFollower
from dodona.tools.rebuildable_db import (
    DatabaseFormat,
    FileIdentity,
    RebuildableDatabase,
    snapshot,
    transaction,
)
from dodona.tools.vault.index import index_rows
from dodona.tools.vault.index.searcher import SectionSearcher, add_new_terms, count_words
from dodona.tools.vault.notes.files import MAX_NOTE_BYTES, NoteStamp, read_file, walk_notes
from dodona.tools.vault.notes.marks import NO_LOOKUP, MarkLookup

# `names` of a note are its title and aliases, `labels` its tags and the parts of its path. `terms`
# are the words of the index, used for substring search: a trigram index took three times the time
# and space. `words` is contentless: a row is deleted by passing the same text again. `blocks` are
# the keys of a note's blocks, for its marks.
_SCHEMA = """
CREATE TABLE notes (
    id INTEGER PRIMARY KEY, path TEXT UNIQUE, name TEXT, mtime_ns INT, size INT, is_settled INT,
    title TEXT, tags TEXT, names TEXT, labels TEXT, blocks BLOB
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

KIND: Final = DatabaseFormat(_SCHEMA, application_id=0x444F444E, version=6, label="vault index")


MAX_NOTES: Final = 200_000
BATCH_SIZE: Final = 500  # notes per transaction: the cost of a crash
UPDATE_BATCH_SIZE: Final = 100  # notes per update, which writers of notes wait for
BATCH_BYTES: Final = 8_000_000
OPTIMIZE_THRESHOLD: Final = 1_000  # changed notes after which the index is optimized
# A file written this recently may be written again without a new stamp.
MTIME_SETTLE_NS: Final = 100_000_000

Progress: TypeAlias = Callable[[int, int], None]

_log = logging.getLogger(__name__)
T = TypeVar("T")


class VaultIndex:
    """The index file of one vault. Methods block; call them from any number of threads.

    With a `follower`, queries wait a moment for the changes it has not indexed yet; they scan the
    folder only while it is not followed.
    """

    def __init__(self, root: Path, path: Path) -> None:
        self.follower: IndexFollower | None = None
        self._root = root
        self._file = RebuildableDatabase(path, KIND)
        self._searcher = SectionSearcher()
        self._write_lock = threading.Lock()
        self._closing = threading.Event()
        # The file that has been fully refreshed.
        self._refreshed_identity: FileIdentity | None = None

    def refresh(
        self, progress: Progress = lambda done, total: None, *, stop: threading.Event | None = None
    ) -> None:
        """Index changed notes and delete removed ones; a renamed note is both.

        `progress` gets the number of changed notes that are done, and their total. If it raises or
        `stop` is set, the refresh stops with an error and keeps the work done so far.
        """

        def report(done: int, total: int) -> None:
            if stop is not None and stop.is_set():
                raise ToolFailed("the vault is closed.")
            progress(done, total)

        self._file.run_safely(lambda db: self._catch_up(db, report))

    def update(self, paths: Iterable[str], stop: threading.Event | None = None) -> None:
        """Index these notes and the notes in these folders again; setting `stop` ends it early."""
        requested = list(paths)
        changed = self._file.run_safely(lambda db: self._find_changes(db, requested))
        for at in range(0, len(changed), UPDATE_BATCH_SIZE):
            if stop is not None and stop.is_set():
                return
            batch = changed[at : at + UPDATE_BATCH_SIZE]
            self._file.run_safely(lambda db, batch=batch: self._update_batch(db, batch))

    def search(self, query: str, limit: int, lookup: MarkLookup = NO_LOOKUP) -> list[NoteHit]:
        """Return the best sections for a query, with scores from 0 to 1."""

        def search(db: sqlite3.Connection) -> list[NoteHit]:
            hits = self._searcher.search(db, query, limit=limit, identity=self._file.identity())
            return _add_marks(db, hits, lookup)

        return self._query_fresh(search)

    def search_sections(
        self, words: Sequence[str], limit: int, lookup: MarkLookup = NO_LOOKUP
    ) -> list[NoteHit]:
        """Return whole sections with any of the words, unranked."""

        def search(db: sqlite3.Connection) -> list[NoteHit]:
            hits = self._searcher.search_sections(
                db, words, limit=limit, identity=self._file.identity()
            )
            return _add_marks(db, hits, lookup)

        return self._query_fresh(search)

    def count_words(self, words: Sequence[str]) -> tuple[int, dict[str, int]]:
        """Return the number of sections, and for each word how many have it."""
        return self._query_fresh(lambda db: count_words(db, words))

    def find_relevant(
        self, query: str, limit: int, lookup: MarkLookup = NO_LOOKUP
    ) -> list[NoteSummary]:
        """Return the notes that match a query best, then the most recently changed."""

        def query_notes(db: sqlite3.Connection) -> list[NoteSummary]:
            best = self._searcher.search_paths(
                db, query, limit=limit, identity=self._file.identity()
            )
            newest = (row[0] for row in db.execute(_NEWEST_SQL, (limit,)))
            paths = list(islice(dict.fromkeys([*best, *newest]), limit))
            placeholders = ",".join("?" * len(paths))
            rows = db.execute(f"{_LIST_SQL} WHERE path IN ({placeholders})", paths)
            by_path = {row[0]: _note_from_row(row, lookup) for row in rows}
            return [by_path[path] for path in paths]

        return self._query_fresh(query_notes)

    def notes(self, lookup: MarkLookup = NO_LOOKUP) -> list[NoteSummary]:
        """Return every note, sorted by path."""
        return self._query_fresh(
            lambda db: [
                _note_from_row(row, lookup) for row in db.execute(f"{_LIST_SQL} ORDER BY path")
            ]
        )

    def backlinks(self, path: str, lookup: MarkLookup = NO_LOOKUP) -> list[Backlink]:
        """Return the lines that link to a note, sorted by path."""

        def find(db: sqlite3.Connection) -> list[Backlink]:
            links = index_rows.find_backlinks(db, path)
            marks = index_rows.marks_of_notes(db, lookup, (link.path for link in links))
            return [replace(link, marks=marks[link.path]) for link in links] if marks else links

        return self._query_fresh(find)

    def marks(self, paths: Sequence[str], lookup: MarkLookup) -> Marks:
        """Return the marks of all these notes."""
        found = self._query_fresh(lambda db: index_rows.marks_of_notes(db, lookup, paths))
        return merge_marks(*found.values())

    def notes_linking_to(self, path: str) -> list[str]:
        """Return the notes with a link to a note."""
        return self._query_fresh(lambda db: index_rows.notes_linking_to(db, path))

    @property
    def is_behind(self) -> bool:
        """Whether changes have been waiting for longer than a query waits for them."""
        return self.follower is not None and self.follower.is_behind

    def tags(self, lookup: MarkLookup = NO_LOOKUP) -> list[NoteTag]:
        """Return every tag with its number of notes, most frequent first, ignoring case."""
        return self._query_fresh(lambda db: _count_tags(db, lookup))

    def close(self) -> None:
        """Stop a running refresh, and close the file when it is no longer in use."""
        self._closing.set()
        try:
            self._file.close()
        finally:
            # The next file may be a different one with the same inode number.
            self._refreshed_identity = None
            self._searcher = SectionSearcher()
            self._closing.clear()

    def _query_fresh(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work` on an index that is up to date."""

        def run_on_fresh(db: sqlite3.Connection) -> T:
            is_followed = self.follower is not None and self.follower.is_following
            if not is_followed or self._refreshed_identity != self._file.identity():
                self._catch_up(db)
            elif self.follower is not None:
                self.follower.catch_up()
            with snapshot(db):
                return work(db)

        return self._file.run_safely(run_on_fresh)

    def _catch_up(
        self, db: sqlite3.Connection, progress: Progress = lambda done, total: None
    ) -> None:
        with self._write_lock:
            self._refresh(db, progress)
            self._refreshed_identity = self._file.identity()

    def _refresh(self, db: sqlite3.Connection, progress: Progress) -> None:
        current = dict(islice(walk_notes(self._root), MAX_NOTES))
        if len(current) == MAX_NOTES:
            _log.warning("only the first %d notes of the vault are indexed", MAX_NOTES)
        indexed = index_rows.indexed_stamps(db)
        removed = [path for path in indexed if path not in current]
        changed = [path for path, stamp in current.items() if indexed.get(path) != stamp]
        changed.sort(key=lambda path: current[path].mtime_ns)  # newest last
        for batch in _batches(removed, current):
            with transaction(db):
                index_rows.delete_notes(db, batch)
        self._index_batches(
            db, _batches(changed, current), lambda done: progress(done, len(changed))
        )
        if len(changed) >= OPTIMIZE_THRESHOLD:
            db.execute("INSERT INTO words (words) VALUES ('optimize')")

    def _find_changes(self, db: sqlite3.Connection, paths: Sequence[str]) -> list[str]:
        """Return the notes at or below these paths that differ from the index, removed ones too."""
        current: dict[str, NoteStamp] = {}
        indexed: dict[str, NoteStamp | None] = {}
        for path in paths:
            current.update(islice(walk_notes(self._root, path), MAX_NOTES))
            indexed.update(index_rows.indexed_stamps(db, path))
        differing = indexed.items() ^ current.items()
        return sorted({path for path, _ in differing})

    def _update_batch(self, db: sqlite3.Connection, paths: Sequence[str]) -> None:
        with self._write_lock:
            self._index_batches(db, [paths])

    def _index_batches(
        self,
        db: sqlite3.Connection,
        batches: Iterable[Sequence[str]],
        progress: Callable[[int], None] = lambda done: None,
    ) -> None:
        """Read notes and index them as read.

        The next batch is read while SQLite indexes the previous one without holding the GIL.
        """

        def report(count: int) -> None:
            if self._closing.is_set():
                raise ToolFailed("the vault is closed.")
            progress(count)

        done = 0
        with ThreadPoolExecutor(1, "dodona-index") as pool:
            previous: Future[None] | None = None
            for batch in batches:
                parsed = {path: self._read_note(path) for path in batch}
                if previous is not None:
                    previous.result()
                    report(done)
                previous = pool.submit(_finish_batch, db, *_begin_batch(db, parsed))
                done += len(batch)
            if previous is not None:
                previous.result()
                progress(done)
        with transaction(db):
            add_new_terms(db)

    def _read_note(self, path: str) -> index_rows.ParsedNote | None:
        """Return a note as it is now; None if it is gone, a link, or unreadable."""
        now = time_ns()
        try:
            content = read_file(self._root, path.split("/"))
        except (OSError, AccessDenied, ToolRetry):
            return None
        is_settled = abs(now - content.stamp.mtime_ns) > MTIME_SETTLE_NS
        return index_rows.parse_content(path, content, is_settled=is_settled)


_LIST_SQL: Final = "SELECT path, title, tags, mtime_ns, size, blocks FROM notes"
_NEWEST_SQL: Final = "SELECT path FROM notes ORDER BY mtime_ns DESC, path LIMIT ?"


def _add_marks(db: sqlite3.Connection, hits: list[NoteHit], lookup: MarkLookup) -> list[NoteHit]:
    marks = index_rows.marks_of_notes(db, lookup, (hit.path for hit in hits))
    return [replace(hit, marks=marks[hit.path]) for hit in hits] if marks else hits


def _note_from_row(row: tuple[str, str, str, int, int, bytes], lookup: MarkLookup) -> NoteSummary:
    path, title, tags, mtime_ns, size, blocks = row
    return NoteSummary(
        path,
        title,
        index_rows.split_tags(tags),
        Timestamp(mtime_ns / 1e9),
        size,
        lookup.list_marks(path, blocks) if lookup else (),
    )


def _count_tags(db: sqlite3.Connection, lookup: MarkLookup) -> list[NoteTag]:
    spellings: dict[str, Counter[str]] = {}
    marks: dict[str, set[Mark]] = {}
    for path, column, blocks in db.execute("SELECT path, tags, blocks FROM notes WHERE tags != ''"):
        note_marks = lookup.list_marks(path, blocks) if lookup else ()
        for key, tag in {tag.casefold(): tag for tag in index_rows.split_tags(column)}.items():
            spellings.setdefault(key, Counter())[tag] += 1
            marks.setdefault(key, set()).update(note_marks)
    tags = [
        NoteTag(
            names.most_common(1)[0][0], names.total(), tuple(sort_marks(merge_marks(marks[key])))
        )
        for key, names in spellings.items()
    ]
    return sorted(tags, key=lambda tag: (-tag.notes, tag.tag))


def _begin_batch(
    db: sqlite3.Connection, notes: Mapping[str, index_rows.ParsedNote | None]
) -> tuple[int, ExitStack]:
    """Insert notes in an open transaction; return the last previous section and the transaction."""
    with ExitStack() as stack:
        stack.enter_context(transaction(db))
        index_rows.delete_notes(db, [path for path, note in notes.items() if note is None])
        # Another process may have indexed them already.
        new = [note for note in notes.values() if note and not index_rows.is_indexed(db, note)]
        return index_rows.insert_notes(db, new), stack.pop_all()


def _finish_batch(db: sqlite3.Connection, first: int, stack: ExitStack) -> None:
    with stack:
        index_rows.index_words(db, first)


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
