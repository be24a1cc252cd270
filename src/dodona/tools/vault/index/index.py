"""The index of a vault: a file that can be deleted and rebuilt at any time.

It has one row per section. It is refreshed by file stamps before each use, or on changes while the
folder is watched.
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
from dodona.core.json_document import Timestamp
from dodona.tools.rebuildable_db import (
    DatabaseFormat,
    FileIdentity,
    RebuildableDatabase,
    snapshot,
    transaction,
)
from dodona.tools.vault.index import backlink_query, index_rows, vocabulary
from dodona.tools.vault.index.searcher import SectionSearcher
from dodona.tools.vault.notes.files import MAX_NOTE_BYTES, NoteStamp, read_file, walk_notes
from dodona.tools.vault.notes.paths import MAX_DEPTH, is_allowed_name, is_note

# `names` of a note are its title and aliases, `labels` its tags and the parts of its path. `terms`
# are the words of the index, used for substring search: a trigram index took three times the time
# and space. `words` is contentless: a row is deleted by passing the same text again.
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
MAX_SINGLE_UPDATES: Final = 1_000  # with more changed notes, the whole folder is scanned
BATCH_SIZE: Final = 500  # notes per transaction: the cost of a crash, and the wait for others
BATCH_BYTES: Final = 8_000_000
OPTIMIZE_THRESHOLD: Final = 1_000  # changed notes after which the index is optimized
# A file written this recently may be written again without a new stamp.
MTIME_SETTLE_NS: Final = 100_000_000

Progress: TypeAlias = Callable[[int, int], None]

_log = logging.getLogger(__name__)
T = TypeVar("T")


class VaultIndex:
    """The index file of one vault. Methods block; call them from any number of threads.

    While `is_watched` is true, a watcher reports changes and queries do not scan the folder.
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
        # The file that has been fully refreshed.
        self._refreshed_identity: FileIdentity | None = None

    def refresh(self, progress: Progress | None = None) -> None:
        """Index changed notes and delete removed ones; a renamed note is both.

        `progress` gets the number of changed notes that are done, and their total. If it raises,
        the refresh stops and keeps the work done so far.
        """
        self._with_connection(lambda db: self._catch_up(db, progress))

    def reindex(self, paths: Iterable[str]) -> None:
        """Index these notes again, or the notes in these folders."""
        requested = list(islice(paths, MAX_SINGLE_UPDATES + 1))
        folders = [path for path in requested if not is_note(path)]
        if len(requested) > MAX_SINGLE_UPDATES or any(
            (self._root / folder).is_dir() for folder in folders
        ):
            self.refresh()
        else:
            self._with_connection(lambda db: self._reindex(db, requested))

    def search(self, query: str, limit: int) -> list[NoteHit]:
        """Return the best sections for a query, with scores from 0 to 1."""
        return self._query_fresh(
            lambda db: self._searcher.search(db, query, limit=limit, identity=self._file.identity())
        )

    def find_relevant(self, query: str, limit: int) -> list[NoteSummary]:
        """Return the notes that match a query best, then the most recently changed."""

        def query_notes(db: sqlite3.Connection) -> list[NoteSummary]:
            best = self._searcher.search_paths(
                db, query, limit=limit, identity=self._file.identity()
            )
            newest = (row[0] for row in db.execute(_NEWEST_SQL, (limit,)))
            paths = list(islice(dict.fromkeys([*best, *newest]), limit))
            placeholders = ",".join("?" * len(paths))
            summaries = map(
                _note_from_row, db.execute(f"{_LIST_SQL} WHERE path IN ({placeholders})", paths)
            )
            by_path = {note.path: note for note in summaries}
            return [by_path[path] for path in paths]

        return self._query_fresh(query_notes)

    def notes(self) -> list[NoteSummary]:
        """Return every note, sorted by path."""
        return self._query_fresh(
            lambda db: [_note_from_row(row) for row in db.execute(f"{_LIST_SQL} ORDER BY path")]
        )

    def backlinks(self, path: str) -> list[Backlink]:
        """Return the lines that link to a note, sorted by path."""
        return self._query_fresh(lambda db: backlink_query.find_backlinks(db, path))

    def notes_linking_to(self, path: str) -> list[str]:
        """Return the notes with a link to a note."""
        return self._query_fresh(lambda db: backlink_query.notes_linking_to(db, path))

    def tags(self) -> list[tuple[str, int]]:
        """Return every tag with its number of notes, most frequent first, ignoring case."""
        return self._query_fresh(_count_tags)

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
            if not self._is_watched() or self._refreshed_identity != self._file.identity():
                self._catch_up(db)
            with snapshot(db):
                return work(db)

        return self._with_connection(run_on_fresh)

    def _with_connection(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            return self._file.run(work)
        except sqlite3.Error as error:
            _log.error("the vault index cannot be used: %s", error)
            raise ToolFailed(
                "the vault index is unavailable at the moment.", hint="Try again later."
            ) from error

    def _catch_up(self, db: sqlite3.Connection, progress: Progress | None = None) -> None:
        with self._write_lock:
            self._refresh(db, progress or _ignore_progress)
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

    def _reindex(self, db: sqlite3.Connection, paths: Sequence[str]) -> None:
        with self._write_lock:
            notes = {path for path in paths if _is_in_vault(path)}
            for path in paths:
                notes |= index_rows.notes_below(db, path)
            self._index_batches(db, [sorted(notes)])

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
            vocabulary.add_new_terms(db)

    def _read_note(self, path: str) -> index_rows.ParsedNote | None:
        """Return a note as it is now; None if it is gone, a link, or unreadable."""
        now = time_ns()
        try:
            content = read_file(self._root, path.split("/"))
        except (OSError, AccessDenied, ToolRetry):
            return None
        is_settled = abs(now - content.stamp.mtime_ns) > MTIME_SETTLE_NS
        return index_rows.parse_content(path, content, is_settled=is_settled)


_LIST_SQL: Final = "SELECT path, title, tags, mtime_ns, size FROM notes"
_NEWEST_SQL: Final = "SELECT path FROM notes ORDER BY mtime_ns DESC, path LIMIT ?"


def _note_from_row(row: tuple[str, str, str, int, int]) -> NoteSummary:
    path, title, tags, mtime_ns, size = row
    return NoteSummary(path, title, index_rows.split_tags(tags), Timestamp(mtime_ns / 1e9), size)


def _count_tags(db: sqlite3.Connection) -> list[tuple[str, int]]:
    spellings: dict[str, Counter[str]] = {}
    for (column,) in db.execute("SELECT tags FROM notes WHERE tags != ''"):
        for key, tag in {tag.casefold(): tag for tag in index_rows.split_tags(column)}.items():
            spellings.setdefault(key, Counter())[tag] += 1
    counted = [(names.most_common(1)[0][0], names.total()) for names in spellings.values()]
    return sorted(counted, key=lambda item: (-item[1], item[0]))


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


def _is_in_vault(path: str) -> bool:
    parts = path.split("/")
    return is_note(parts[-1]) and len(parts) <= MAX_DEPTH and all(map(is_allowed_name, parts))


def _ignore_progress(done: int, total: int) -> None:
    """Discard progress reports."""
