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
from dodona.tools.code.files.files import Stamp, is_binary, read_below, version_of
from dodona.tools.code.files.folders import Folders
from dodona.tools.code.files.walk import MOST_FILES, Walk
from dodona.tools.code.index.index_file import (
    SKIPPED,
    IndexedFile,
    Taken,
    drop,
    get_state,
    known_files,
    put,
    restamp,
    set_state,
)
from dodona.tools.code.parsing.extraction import extract
from dodona.tools.rebuildable_db import transaction

BATCH_FILES: Final = 200  # of a transaction: what a crash can cost
BATCH_BYTES: Final = 2_000_000
# A file that was changed so shortly before it was read may change again under the same stamp.
RACY_NS: Final = 100_000_000

Progress = Callable[[IndexProgress], None]

_log = logging.getLogger(__name__)
_NEVER: Final = Stamp(-1, -1, -1)


@dataclass(slots=True)
class Look:
    """One look at the folders, and what it came to so far."""

    folders: Folders
    max_bytes: int
    stop: Event = field(default_factory=Event)
    progress: Progress | None = None
    indexed: int = 0
    unchanged: int = 0
    removed: int = 0
    skipped: int = 0
    size: int = 0

    def take(self, db: sqlite3.Connection) -> IndexState:
        """Take everything in. It ends early when `stop` is set, and keeps what is done."""
        started = perf_counter()
        known = known_files(db)
        there, away = self._walked()
        gone = [path for path in known if path not in there and not path.startswith(away)]
        changed = [path for path in there if path not in known or known[path].stamp != there[path]]
        self.unchanged = len(there) - len(changed)
        if gone or changed:
            _mark(db, is_complete=False)
            self._drop_all(db, gone)
            self._take_all(db, changed, known)
        binary = db.execute("SELECT count(*) FROM files WHERE language = ?", (SKIPPED,))
        self.skipped += binary.fetchone()[0]
        self.unchanged -= sum(known[p].language == SKIPPED for p in there if p in known)
        return self._told(db, perf_counter() - started)

    def _walked(self) -> tuple[dict[str, Stamp], tuple[str, ...]]:
        """The files there are, and the prefixes of folders that are away: theirs are kept."""
        there: dict[str, Stamp] = {}
        away: list[str] = []
        for folder in self.folders.all:
            walk = Walk(folder, self.max_bytes)
            try:
                there.update(islice(walk.files(), MOST_FILES - len(there)))
            except OSError as error:
                _log.warning("a folder of code cannot be read: %s", error)
                away.append(folder.prefix)
            self.skipped += walk.skipped
        return there, tuple(away)

    def _drop_all(self, db: sqlite3.Connection, gone: Sequence[str]) -> None:
        for at in range(0, len(gone), BATCH_FILES):
            batch = gone[at : at + BATCH_FILES]
            with transaction(db):
                drop(db, batch)
                _count_edition(db)
            self.removed += len(batch)

    def _take_all(
        self, db: sqlite3.Connection, changed: Sequence[str], known: dict[str, IndexedFile]
    ) -> None:
        done = 0
        self._tell(IndexProgress(0, len(changed), 0))
        for batch in self._batches(changed, known):
            with transaction(db):
                drop(db, [each.path for each in batch.files] + batch.lost)
                put(db, batch.files)
                restamp(db, batch.touched)
                _count_edition(db)
            done += batch.looked_at
            self.indexed += sum(each.extracted is not None for each in batch.files)
            self.unchanged += len(batch.touched)
            self.skipped += len(batch.lost)
            self._tell(IndexProgress(done, len(changed), self.size, batch.last))

    def _tell(self, progress: IndexProgress) -> None:
        if self.progress is not None:
            self.progress(progress)

    def _batches(self, changed: Sequence[str], known: dict[str, IndexedFile]) -> Iterator[_Batch]:
        batch = _Batch()
        for path in changed:
            if self.stop.is_set():
                break
            batch.looked_at += 1
            batch.last = path
            self._look_at(path, known.get(path), batch)
            if batch.looked_at >= BATCH_FILES or batch.size >= BATCH_BYTES:
                yield batch
                batch = _Batch()
        if batch.looked_at:
            yield batch

    def _look_at(self, path: str, before: IndexedFile | None, batch: _Batch) -> None:
        root, parts = self.folders.find(path)
        try:
            data, stamp = read_below(root, parts, most=self.max_bytes)
        except OSError:  # gone, a link by now, or not ours to read
            batch.lost.append(path)
            return
        if time_ns() - stamp.mtime_ns < RACY_NS:
            stamp = _NEVER
        version = version_of(data)
        if before is not None and before.version == version:
            batch.touched.append((before.id, stamp))
            return
        extracted = None if is_binary(data) else extract(path, data)
        batch.files.append(Taken(path, stamp, version, data, extracted))
        if extracted is not None:
            batch.size += len(data)
            self.size += len(data)

    def _told(self, db: sqlite3.Connection, seconds: float) -> IndexState:
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
        _mark(db, is_complete=not self.stop.is_set())
        return _state(db, last)


@dataclass(slots=True)
class _Batch:
    files: list[Taken] = field(default_factory=list[Taken])
    touched: list[tuple[int, Stamp]] = field(default_factory=list[tuple[int, Stamp]])
    lost: list[str] = field(default_factory=list[str])
    looked_at: int = 0
    size: int = 0
    last: str = ""


def _mark(db: sqlite3.Connection, *, is_complete: bool) -> None:
    value = "yes" if is_complete else ""
    if get_state(db, "complete") != value:
        set_state(db, "complete", value)


def edition(db: sqlite3.Connection) -> int:
    """A number that changes with what the index holds."""
    return int(get_state(db, "edition") or 0)


def _count_edition(db: sqlite3.Connection) -> None:
    set_state(db, "edition", str(edition(db) + 1))


def kept_state(db: sqlite3.Connection) -> IndexState:
    """What the index holds, and the last look that changed something."""
    return _state(db, json.loads(get_state(db, "last") or "{}"))


def _state(db: sqlite3.Connection, last: dict[str, float]) -> IndexState:
    files, chunks, symbols = db.execute(
        "SELECT count(*), total(chunks), total(symbols) FROM files WHERE language != ?", (SKIPPED,)
    ).fetchone()
    return IndexState(
        files=files,
        indexed=int(last.get("indexed", 0)),
        unchanged=int(last.get("unchanged", 0)),
        removed=int(last.get("removed", 0)),
        skipped=int(last.get("skipped", 0)),
        size=int(last.get("size", 0)),
        chunks=int(chunks),
        symbols=int(symbols),
        seconds=last.get("seconds", 0.0),
        is_complete=bool(get_state(db, "complete")),
    )
