"""Bring an index up to date: take in what has changed, drop what is gone.

Files are read and parsed between transactions, and put in by batches: an index that is interrupted
goes on where it stopped. A file whose stamp is the same is not read; one that was touched is
hashed, and parsed only if it is another.
"""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from threading import Event
from time import perf_counter, time_ns
from typing import Final

from dodona.core.domain.knowledge.code import IndexProgress, IndexState
from dodona.tools.code.files.files import SourceStamp, is_binary, read_below, version_of
from dodona.tools.code.files.folders import CodeFolders
from dodona.tools.code.files.walk import MAX_FILES, FolderWalk
from dodona.tools.code.index.index_file import (
    NOT_TEXT,
    IndexedFile,
    ParsedFile,
    delete_files,
    get_state,
    insert_files,
    load_indexed_files,
    set_state,
    update_stamps,
)
from dodona.tools.code.parsing.extraction import extract
from dodona.tools.rebuildable_db import transaction

BATCH_FILES: Final = 200  # of a transaction: what a crash can cost
BATCH_BYTES: Final = 2_000_000
# A file that was changed so shortly before it was read may change again under the same stamp.
RACY_NS: Final = 100_000_000

IndexProgressCallback = Callable[[IndexProgress], None]

_log = logging.getLogger(__name__)
_UNSTABLE_STAMP: Final = SourceStamp(-1, -1, -1)


@dataclass(slots=True)
class IndexRefresh:
    """One look at the folders, and what it came to so far."""

    folders: CodeFolders
    max_bytes: int
    stop: Event = field(default_factory=Event)
    progress: IndexProgressCallback | None = None
    indexed: int = 0
    unchanged: int = 0
    removed: int = 0
    skipped: int = 0
    size: int = 0

    def run(self, db: sqlite3.Connection) -> IndexState:
        """Take everything in. It ends early when `stop` is set, and keeps what is done."""
        started = perf_counter()
        known = load_indexed_files(db)
        there, away = self._walk_folders()
        gone = [path for path in known if path not in there and not path.startswith(away)]
        changed = [path for path in there if path not in known or known[path].stamp != there[path]]
        self.unchanged = len(there) - len(changed)
        if gone or changed:
            _set_complete(db, is_complete=False)
            self._delete_removed(db, gone)
            self._index_changed(db, changed, known)
        binary = db.execute("SELECT count(*) FROM files WHERE language = ?", (NOT_TEXT,))
        self.skipped += binary.fetchone()[0]
        self.unchanged -= sum(known[p].language == NOT_TEXT for p in there if p in known)
        return self._record_result(db, perf_counter() - started)

    def _walk_folders(self) -> tuple[dict[str, SourceStamp], tuple[str, ...]]:
        """The files there are, and the prefixes of folders that are away: theirs are kept."""
        there: dict[str, SourceStamp] = {}
        away: list[str] = []
        for folder in self.folders.all:
            walk = FolderWalk(folder, self.max_bytes)
            try:
                there.update(islice(walk.files(), MAX_FILES - len(there)))
            except OSError as error:
                _log.warning("a folder of code cannot be read: %s", error)
                away.append(folder.prefix)
            self.skipped += walk.skipped
        return there, tuple(away)

    def _delete_removed(self, db: sqlite3.Connection, removed: Sequence[str]) -> None:
        for at in range(0, len(removed), BATCH_FILES):
            batch = removed[at : at + BATCH_FILES]
            with transaction(db):
                delete_files(db, batch)
                _bump_revision(db)
            self.removed += len(batch)

    def _index_changed(
        self, db: sqlite3.Connection, changed: Sequence[str], indexed_files: dict[str, IndexedFile]
    ) -> None:
        done = 0
        self._report_progress(IndexProgress(0, len(changed), 0))
        for batch in self._batches(changed, indexed_files):
            with transaction(db):
                delete_files(db, [each.path for each in batch.files] + batch.unreadable)
                insert_files(db, batch.files)
                update_stamps(db, batch.touched)
                _bump_revision(db)
            done += batch.processed
            self.indexed += sum(each.extracted is not None for each in batch.files)
            self.unchanged += len(batch.touched)
            self.skipped += len(batch.unreadable)
            self._report_progress(IndexProgress(done, len(changed), self.size, batch.last_path))

    def _report_progress(self, progress: IndexProgress) -> None:
        if self.progress is not None:
            self.progress(progress)

    def _batches(
        self, changed: Sequence[str], indexed_files: dict[str, IndexedFile]
    ) -> Iterator[_Batch]:
        batch = _Batch()
        for path in changed:
            if self.stop.is_set():
                break
            batch.processed += 1
            batch.last_path = path
            self._process_file(path, indexed_files.get(path), batch)
            if batch.processed >= BATCH_FILES or batch.size >= BATCH_BYTES:
                yield batch
                batch = _Batch()
        if batch.processed:
            yield batch

    def _process_file(self, path: str, previous: IndexedFile | None, batch: _Batch) -> None:
        root, parts = self.folders.resolve(path)
        try:
            data, stamp = read_below(root, parts, max_bytes=self.max_bytes)
        except OSError:  # gone, a link by now, or not ours to read
            batch.unreadable.append(path)
            return
        if time_ns() - stamp.mtime_ns < RACY_NS:
            stamp = _UNSTABLE_STAMP
        version = version_of(data)
        if previous is not None and previous.version == version:
            batch.touched.append((previous.id, stamp))
            return
        extracted = None if is_binary(data) else extract(path, data)
        batch.files.append(ParsedFile(path, stamp, version, data, extracted))
        if extracted is not None:
            batch.size += len(data)
            self.size += len(data)

    def _record_result(self, db: sqlite3.Connection, seconds: float) -> IndexState:
        last = {
            "indexed": self.indexed,
            "unchanged": self.unchanged,
            "removed": self.removed,
            "skipped": self.skipped,
            "size": self.size,
            "seconds": round(seconds, 3),
        }
        if self.indexed or self.removed or not get_state(db, "last"):
            set_state(db, "last", json.dumps(last))
        _set_complete(db, is_complete=not self.stop.is_set())
        return _build_state(db, last)


@dataclass(slots=True)
class _Batch:
    files: list[ParsedFile] = field(default_factory=list[ParsedFile])
    touched: list[tuple[int, SourceStamp]] = field(default_factory=list[tuple[int, SourceStamp]])
    unreadable: list[str] = field(default_factory=list[str])
    processed: int = 0
    size: int = 0
    last_path: str = ""


def _set_complete(db: sqlite3.Connection, *, is_complete: bool) -> None:
    value = "yes" if is_complete else ""
    if get_state(db, "complete") != value:
        set_state(db, "complete", value)


def get_revision(db: sqlite3.Connection) -> int:
    """A number that changes with what the index holds."""
    return int(get_state(db, "edition") or 0)


def _bump_revision(db: sqlite3.Connection) -> None:
    set_state(db, "edition", str(get_revision(db) + 1))


def load_state(db: sqlite3.Connection) -> IndexState:
    """What the index holds, and the last look that changed something."""
    return _build_state(db, json.loads(get_state(db, "last") or "{}"))


def _build_state(db: sqlite3.Connection, last_refresh: dict[str, float]) -> IndexState:
    files, chunks, symbols = db.execute(
        "SELECT count(*), total(chunks), total(symbols) FROM files WHERE language != ?", (NOT_TEXT,)
    ).fetchone()
    return IndexState(
        files=files,
        indexed=int(last_refresh.get("indexed", 0)),
        unchanged=int(last_refresh.get("unchanged", 0)),
        removed=int(last_refresh.get("removed", 0)),
        skipped=int(last_refresh.get("skipped", 0)),
        size=int(last_refresh.get("size", 0)),
        chunks=int(chunks),
        symbols=int(symbols),
        seconds=last_refresh.get("seconds", 0.0),
        is_complete=bool(get_state(db, "complete")),
    )
