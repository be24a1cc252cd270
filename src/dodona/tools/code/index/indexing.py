"""Refreshes an index: indexes changed files and deletes removed ones.

Files are read and parsed between transactions and inserted in batches, so an interrupted run
resumes where it stopped. A file with the same stamp is not read; a touched file is hashed, and
parsed only if its content differs.
"""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import PurePosixPath
from threading import Event
from time import perf_counter, time_ns
from typing import Any, Final

from dodona.core.domain.knowledge.code import IndexProgress, IndexState
from dodona.tools.code.files.folders import (
    MAX_FILES,
    CodeFolder,
    CodeFolders,
    FolderWalk,
    SourceStamp,
    is_binary,
    read_below,
    version_of,
)
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

BATCH_FILES: Final = 200  # per transaction; a crash loses at most one batch
BATCH_BYTES: Final = 2_000_000
# A file changed this recently may change again without a new stamp.
RACY_NS: Final = 100_000_000

IndexProgressCallback = Callable[[IndexProgress], None]

_log = logging.getLogger(__name__)
_COUNTS: Final = ("indexed", "unchanged", "removed", "skipped", "size")
_NO_REFRESH: Final[Mapping[str, Any]] = {**dict.fromkeys(_COUNTS, 0), "seconds": 0.0}
_UNSTABLE_STAMP: Final = SourceStamp(-1, -1, -1)


@dataclass(slots=True)
class IndexRefresh:
    """One refresh of an index, with its counters."""

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
        """Refresh the index. Setting `stop` ends it early and keeps the work done so far."""
        started = perf_counter()
        indexed = load_indexed_files(db)
        current, unavailable = self._walk_folders()
        removed = [
            path for path in indexed if path not in current and not path.startswith(unavailable)
        ]
        changed = [path for path in current if _differs(indexed.get(path), current[path])]
        self.unchanged = len(current) - len(changed)
        if removed or changed:
            _set_complete(db, is_complete=False)
            self._delete_removed(db, removed)
            self._index_changed(db, changed, indexed)
        binary = db.execute("SELECT count(*) FROM files WHERE language = ?", (NOT_TEXT,))
        self.skipped += binary.fetchone()[0]
        self.unchanged -= sum(indexed[p].language == NOT_TEXT for p in current if p in indexed)
        return self._record_result(db, perf_counter() - started)

    def update(self, db: sqlite3.Connection, paths: Iterable[tuple[CodeFolder, str]]) -> None:
        """Index the changes at and below some paths, which are relative to their folders."""
        indexed: dict[str, IndexedFile] = {}
        current: dict[str, SourceStamp] = {}
        for folder, path in paths:
            indexed.update(load_indexed_files(db, f"{folder.prefix}{path}".rstrip("/")))
            parts = PurePosixPath(path).parts
            current.update(islice(FolderWalk(folder, self.max_bytes).files(parts), MAX_FILES))
        self._delete_removed(db, [path for path in indexed if path not in current])
        changed = [path for path in current if _differs(indexed.get(path), current[path])]
        self._index_changed(db, changed, indexed)

    def _walk_folders(self) -> tuple[dict[str, SourceStamp], tuple[str, ...]]:
        """Return the current files, and the prefixes of unavailable folders, which are kept."""
        current: dict[str, SourceStamp] = {}
        unavailable: list[str] = []
        for folder in self.folders.all:
            walk = FolderWalk(folder, self.max_bytes)
            try:
                current.update(islice(walk.files(), MAX_FILES - len(current)))
            except OSError as error:
                _log.warning("a code folder cannot be read: %s", error)
                unavailable.append(folder.prefix)
            self.skipped += walk.skipped
        return current, tuple(unavailable)

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
                delete_files(db, [file.path for file in batch.files] + batch.unreadable)
                insert_files(db, batch.files)
                update_stamps(db, batch.touched)
                _bump_revision(db)
            done += batch.processed
            self.indexed += sum(file.extracted is not None for file in batch.files)
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
        except OSError:  # removed, replaced by a link, or unreadable
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
        last = {**{name: getattr(self, name) for name in _COUNTS}, "seconds": round(seconds, 3)}
        if self.indexed or self.removed or not get_state(db, "last"):
            set_state(db, "last", json.dumps(last))
        _set_complete(db, is_complete=not self.stop.is_set())
        return _build_state(db, last)


def _differs(indexed: IndexedFile | None, stamp: SourceStamp) -> bool:
    return indexed is None or indexed.stamp != stamp


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
    """Return a number that changes whenever the content of the index does."""
    return int(get_state(db, "edition") or 0)


def _bump_revision(db: sqlite3.Connection) -> None:
    set_state(db, "edition", str(get_revision(db) + 1))


def load_state(db: sqlite3.Connection) -> IndexState:
    """Return the size of the index and the counts of the last full refresh with changes."""
    return _build_state(db, json.loads(get_state(db, "last") or "{}"))


def _build_state(db: sqlite3.Connection, last_refresh: Mapping[str, Any]) -> IndexState:
    files, chunks, symbols = db.execute(
        "SELECT count(*), total(chunks), total(symbols) FROM files WHERE language != ?", (NOT_TEXT,)
    ).fetchone()
    return IndexState(
        files=files,
        chunks=int(chunks),
        symbols=int(symbols),
        is_complete=bool(get_state(db, "complete")),
        **{**_NO_REFRESH, **last_refresh},
    )
