"""The file of a code index: its tables, and how a source file gets in and out of them.

The text of each file is in it, compressed: a hit's lines are those that were indexed, and what a
file gave to the index of words can be taken out again. Chunks and symbols of a file have numbers in
a row, so no index is needed to find them.
"""

from __future__ import annotations

import json
import sqlite3
import zlib
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Final, TypeAlias, cast

from dodona.tools.code.files.files import Stamp
from dodona.tools.code.index.tokenize import words_of
from dodona.tools.code.parsing.extraction import Chunk, Extracted
from dodona.tools.rebuildable_db import Kind

LONGEST_SIGNATURE: Final = 300
LEAST_NAME: Final = 3  # characters that a name needs to connect files
SKIPPED: Final = ""  # the language of a file that is not text

_Row: TypeAlias = tuple[object, ...]
_NOTHING: Final = Extracted(SKIPPED, (), (), (), frozenset())

# Words are kept by column and without positions: two thirds of the size, and as much of the time.
# Their rank is not BM25's own then, see searching.py.
KIND: Final = Kind(
    """
CREATE TABLE files (
    id INTEGER PRIMARY KEY, path TEXT NOT NULL UNIQUE, mtime_ns INT, size INT, inode INT,
    version TEXT, language TEXT, chunk INT, chunks INT, symbol INT, symbols INT
);
CREATE TABLE bodies (file INTEGER PRIMARY KEY, names BLOB, imports TEXT, text BLOB);
CREATE TABLE chunks (id INTEGER PRIMARY KEY, file INT, first INT, last INT, title TEXT, words INT);
CREATE TABLE symbols (
    id INTEGER PRIMARY KEY, file INT, name TEXT, kind TEXT, first INT, last INT,
    signature TEXT, container TEXT
);
CREATE INDEX symbols_name ON symbols (name COLLATE NOCASE);
CREATE VIRTUAL TABLE words USING fts5 (
    head, body, content='', detail=column, columnsize=0, tokenize="ascii tokenchars '_'"
);
INSERT INTO words (words, rank) VALUES ('automerge', 8);
CREATE TABLE state (name TEXT PRIMARY KEY, value);
""",
    application=0x444F4443,  # "DODC"
    version=1,
)


@dataclass(frozen=True, slots=True)
class IndexedFile:
    """A file as the index has it."""

    id: int
    stamp: Stamp
    version: str
    language: str


@dataclass(frozen=True, slots=True)
class Taken:
    """A file that was read, ready to be put in; without `extracted` it is not text."""

    path: str
    stamp: Stamp
    version: str
    data: bytes
    extracted: Extracted | None


def known_files(db: sqlite3.Connection) -> dict[str, IndexedFile]:
    rows = db.execute("SELECT path, id, mtime_ns, size, inode, version, language FROM files")
    return {
        path: IndexedFile(number, Stamp(mtime_ns, size, inode), version, language)
        for path, number, mtime_ns, size, inode, version, language in rows
    }


def put(db: sqlite3.Connection, files: Sequence[Taken]) -> None:
    """Put files in, in a transaction of the caller; they must not be in it."""
    rows = _Rows(*_next(db))
    for taken in files:
        rows.add(taken)
    rows.insert(db)


def drop(db: sqlite3.Connection, paths: Iterable[str]) -> None:
    """Take files out, in a transaction of the caller."""
    for path in paths:
        row = db.execute(
            "SELECT id, chunk, chunks, symbol, symbols FROM files WHERE path = ?", (path,)
        ).fetchone()
        if row is None:
            continue
        file, chunk, chunks, symbol, symbols = cast("tuple[int, int, int, int, int]", row)
        if chunks:
            _drop_words(db, path, file, chunk, chunks)
        db.execute("DELETE FROM chunks WHERE id >= ? AND id < ?", (chunk, chunk + chunks))
        db.execute("DELETE FROM symbols WHERE id >= ? AND id < ?", (symbol, symbol + symbols))
        db.execute("DELETE FROM bodies WHERE file = ?", (file,))
        db.execute("DELETE FROM files WHERE id = ?", (file,))


def restamp(db: sqlite3.Connection, files: Iterable[tuple[int, Stamp]]) -> None:
    """Files that were touched, and are what they were."""
    db.executemany(
        "UPDATE files SET mtime_ns = ?, size = ?, inode = ? WHERE id = ?",
        [(s.mtime_ns, s.size, s.inode, number) for number, s in files],
    )


def text_in(db: sqlite3.Connection, file: int) -> bytes:
    """A file as it was indexed."""
    row = db.execute("SELECT text FROM bodies WHERE file = ?", (file,)).fetchone()
    return zlib.decompress(row[0]) if row else b""


def get_state(db: sqlite3.Connection, name: str) -> str:
    row = db.execute("SELECT value FROM state WHERE name = ?", (name,)).fetchone()
    return row[0] if row else ""


def set_state(db: sqlite3.Connection, name: str, value: str) -> None:
    db.execute("INSERT OR REPLACE INTO state VALUES (?, ?)", (name, value))


def mark_of(name: str) -> int:
    """A name as the names of a file have it: two names may share one, and nothing depends on it."""
    return zlib.crc32(name.encode("utf-8", "replace"))


@dataclass(slots=True)
class _Rows:
    """What some files come to in each table; the numbers are the next free ones."""

    file: int
    chunk: int
    symbol: int
    files: list[_Row] = field(default_factory=list[_Row])
    bodies: list[_Row] = field(default_factory=list[_Row])
    chunks: list[_Row] = field(default_factory=list[_Row])
    symbols: list[_Row] = field(default_factory=list[_Row])
    words: list[_Row] = field(default_factory=list[_Row])

    def add(self, taken: Taken) -> None:
        found = taken.extracted or _NOTHING
        counts = (self.chunk, len(found.chunks), self.symbol, len(found.symbols))
        stamp = (taken.stamp.mtime_ns, taken.stamp.size, taken.stamp.inode)
        about = (taken.version, found.language)
        self.files.append((self.file, taken.path, *stamp, *about, *counts))
        if taken.extracted is not None:
            self._add_content(taken, found)
        self.file += 1

    def _add_content(self, taken: Taken, found: Extracted) -> None:
        self.bodies.append(_body(self.file, found, taken.data))
        for chunk, head, body in _worded(taken.path, taken.data, found.chunks):
            size = body.count(" ") + 1
            lines = (chunk.first, chunk.last)
            self.chunks.append((self.chunk, self.file, *lines, chunk.title, size))
            self.words.append((self.chunk, head, body))
            self.chunk += 1
        for each in found.symbols:
            what = (each.name, each.kind, each.first, each.last)
            signature = each.signature[:LONGEST_SIGNATURE]
            self.symbols.append((self.symbol, self.file, *what, signature, each.container))
            self.symbol += 1

    def insert(self, db: sqlite3.Connection) -> None:
        many = db.executemany
        many("INSERT INTO files VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", self.files)
        many("INSERT INTO bodies VALUES (?, ?, ?, ?)", self.bodies)
        many("INSERT INTO chunks VALUES (?, ?, ?, ?, ?, ?)", self.chunks)
        many("INSERT INTO symbols VALUES (?, ?, ?, ?, ?, ?, ?, ?)", self.symbols)
        many("INSERT INTO words (rowid, head, body) VALUES (?, ?, ?)", self.words)


def _next(db: sqlite3.Connection) -> tuple[int, int, int]:
    """The first free numbers."""
    tables = ("files", "chunks", "symbols")
    found = [db.execute(f"SELECT max(id) FROM {table}").fetchone()[0] for table in tables]  # noqa: S608
    file, chunk, symbol = [(number or 0) + 1 for number in found]
    return file, chunk, symbol


def _body(file: int, found: Extracted, data: bytes) -> _Row:
    names = array("I", {mark_of(name) for name in found.names if len(name) >= LEAST_NAME})
    imports = [[each.module, *each.names] for each in found.imports]
    return (file, names.tobytes(), json.dumps(imports), zlib.compress(data, 1))


def _drop_words(db: sqlite3.Connection, path: str, file: int, chunk: int, chunks: int) -> None:
    rows = db.execute(
        "SELECT first, last, title FROM chunks WHERE id >= ? AND id < ? ORDER BY id",
        (chunk, chunk + chunks),
    )
    pieces = [Chunk(*row) for row in rows]
    db.executemany(
        "INSERT INTO words (words, rowid, head, body) VALUES ('delete', ?, ?, ?)",
        [
            (number, head, body)
            for number, (_, head, body) in enumerate(
                _worded(path, text_in(db, file), pieces), chunk
            )
        ],
    )


def _worded(path: str, data: bytes, chunks: Iterable[Chunk]) -> Iterator[tuple[Chunk, str, str]]:
    """Each chunk with its words: of its title and its file's name, and of its text.

    It must come to the same whenever it is done: what was put in is taken out by it.
    """
    lines = data.split(b"\n")
    parts = PurePosixPath(path).parts[-2:]
    place = words_of(" ".join(parts).encode("utf-8", "replace"))
    for chunk in chunks:
        title = words_of(chunk.title.encode("utf-8", "replace"))
        yield chunk, f"{title} {place}", words_of(b"\n".join(lines[chunk.first - 1 : chunk.last]))
