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

from dodona.tools.code.files.files import SourceStamp
from dodona.tools.code.index.tokenize import words_of
from dodona.tools.code.parsing.extraction import CodeChunk, ExtractedFile
from dodona.tools.rebuildable_db import DatabaseFormat

MAX_SIGNATURE_CHARS: Final = 300
MIN_NAME_CHARS: Final = 3  # characters that a name needs to connect files
NOT_TEXT: Final = ""  # the language of a file that is not text

_Row: TypeAlias = tuple[object, ...]
_EMPTY_EXTRACTION: Final = ExtractedFile(NOT_TEXT, (), (), (), frozenset())

# Words are kept by column and without positions: two thirds of the size, and as much of the time.
# Their rank is not BM25's own then, see searching.py.
DATABASE_FORMAT: Final = DatabaseFormat(
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
    application_id=0x444F4443,  # "DODC"
    version=1,
)


@dataclass(frozen=True, slots=True)
class IndexedFile:
    """A file as the index has it."""

    id: int
    stamp: SourceStamp
    version: str
    language: str


@dataclass(frozen=True, slots=True)
class ParsedFile:
    """A file that was read, ready to be put in; without `extracted` it is not text."""

    path: str
    stamp: SourceStamp
    version: str
    data: bytes
    extracted: ExtractedFile | None


def load_indexed_files(db: sqlite3.Connection) -> dict[str, IndexedFile]:
    rows = db.execute("SELECT path, id, mtime_ns, size, inode, version, language FROM files")
    return {
        path: IndexedFile(number, SourceStamp(mtime_ns, size, inode), version, language)
        for path, number, mtime_ns, size, inode, version, language in rows
    }


def insert_files(db: sqlite3.Connection, files: Sequence[ParsedFile]) -> None:
    """Put files in, in a transaction of the caller; they must not be in it."""
    rows = _RowBatch(*_next_ids(db))
    for taken in files:
        rows.add(taken)
    rows.insert(db)


def delete_files(db: sqlite3.Connection, paths: Iterable[str]) -> None:
    """Take files out, in a transaction of the caller."""
    for path in paths:
        row = db.execute(
            "SELECT id, chunk, chunks, symbol, symbols FROM files WHERE path = ?", (path,)
        ).fetchone()
        if row is None:
            continue
        file, chunk, chunks, symbol, symbols = cast("tuple[int, int, int, int, int]", row)
        if chunks:
            _delete_words(db, path, file, chunk, chunks)
        db.execute("DELETE FROM chunks WHERE id >= ? AND id < ?", (chunk, chunk + chunks))
        db.execute("DELETE FROM symbols WHERE id >= ? AND id < ?", (symbol, symbol + symbols))
        db.execute("DELETE FROM bodies WHERE file = ?", (file,))
        db.execute("DELETE FROM files WHERE id = ?", (file,))


def update_stamps(db: sqlite3.Connection, files: Iterable[tuple[int, SourceStamp]]) -> None:
    """Files that were touched, and are what they were."""
    db.executemany(
        "UPDATE files SET mtime_ns = ?, size = ?, inode = ? WHERE id = ?",
        [(s.mtime_ns, s.size, s.inode, number) for number, s in files],
    )


def load_text(db: sqlite3.Connection, file: int) -> bytes:
    """A file as it was indexed."""
    row = db.execute("SELECT text FROM bodies WHERE file = ?", (file,)).fetchone()
    return zlib.decompress(row[0]) if row else b""


def get_state(db: sqlite3.Connection, name: str) -> str:
    row = db.execute("SELECT value FROM state WHERE name = ?", (name,)).fetchone()
    return row[0] if row else ""


def set_state(db: sqlite3.Connection, name: str, value: str) -> None:
    db.execute("INSERT OR REPLACE INTO state VALUES (?, ?)", (name, value))


def hash_name(name: str) -> int:
    """A name as the names of a file have it: two names may share one, and nothing depends on it."""
    return zlib.crc32(name.encode("utf-8", "replace"))


@dataclass(slots=True)
class _RowBatch:
    """What some files come to in each table; the numbers are the next free ones."""

    next_file_id: int
    next_chunk_id: int
    next_symbol_id: int
    files: list[_Row] = field(default_factory=list[_Row])
    bodies: list[_Row] = field(default_factory=list[_Row])
    chunks: list[_Row] = field(default_factory=list[_Row])
    symbols: list[_Row] = field(default_factory=list[_Row])
    words: list[_Row] = field(default_factory=list[_Row])

    def add(self, parsed: ParsedFile) -> None:
        found = parsed.extracted or _EMPTY_EXTRACTION
        counts = (self.next_chunk_id, len(found.chunks), self.next_symbol_id, len(found.symbols))
        stamp = (parsed.stamp.mtime_ns, parsed.stamp.size, parsed.stamp.inode)
        about = (parsed.version, found.language)
        self.files.append((self.next_file_id, parsed.path, *stamp, *about, *counts))
        if parsed.extracted is not None:
            self._add_content(parsed, found)
        self.next_file_id += 1

    def _add_content(self, parsed: ParsedFile, extracted: ExtractedFile) -> None:
        self.bodies.append(_body_row(self.next_file_id, extracted, parsed.data))
        for chunk, head, body in _tokenize_chunks(parsed.path, parsed.data, extracted.chunks):
            size = body.count(" ") + 1
            lines = (chunk.first, chunk.last)
            self.chunks.append((self.next_chunk_id, self.next_file_id, *lines, chunk.title, size))
            self.words.append((self.next_chunk_id, head, body))
            self.next_chunk_id += 1
        for each in extracted.symbols:
            what = (each.name, each.kind, each.first, each.last)
            signature = each.signature[:MAX_SIGNATURE_CHARS]
            self.symbols.append(
                (self.next_symbol_id, self.next_file_id, *what, signature, each.container)
            )
            self.next_symbol_id += 1

    def insert(self, db: sqlite3.Connection) -> None:
        many = db.executemany
        many("INSERT INTO files VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", self.files)
        many("INSERT INTO bodies VALUES (?, ?, ?, ?)", self.bodies)
        many("INSERT INTO chunks VALUES (?, ?, ?, ?, ?, ?)", self.chunks)
        many("INSERT INTO symbols VALUES (?, ?, ?, ?, ?, ?, ?, ?)", self.symbols)
        many("INSERT INTO words (rowid, head, body) VALUES (?, ?, ?)", self.words)


def _next_ids(db: sqlite3.Connection) -> tuple[int, int, int]:
    """The first free numbers."""
    tables = ("files", "chunks", "symbols")
    found = [db.execute(f"SELECT max(id) FROM {table}").fetchone()[0] for table in tables]  # noqa: S608
    file, chunk, symbol = [(number or 0) + 1 for number in found]
    return file, chunk, symbol


def _body_row(file: int, extracted: ExtractedFile, data: bytes) -> _Row:
    names = array("I", {hash_name(name) for name in extracted.names if len(name) >= MIN_NAME_CHARS})
    imports = [[each.module, *each.names] for each in extracted.imports]
    return (file, names.tobytes(), json.dumps(imports), zlib.compress(data, 1))


def _delete_words(db: sqlite3.Connection, path: str, file: int, chunk: int, chunks: int) -> None:
    rows = db.execute(
        "SELECT first, last, title FROM chunks WHERE id >= ? AND id < ? ORDER BY id",
        (chunk, chunk + chunks),
    )
    pieces = [CodeChunk(*row) for row in rows]
    db.executemany(
        "INSERT INTO words (words, rowid, head, body) VALUES ('delete', ?, ?, ?)",
        [
            (number, head, body)
            for number, (_, head, body) in enumerate(
                _tokenize_chunks(path, load_text(db, file), pieces), chunk
            )
        ],
    )


def _tokenize_chunks(
    path: str, data: bytes, chunks: Iterable[CodeChunk]
) -> Iterator[tuple[CodeChunk, str, str]]:
    """Each chunk with its words: of its title and its file's name, and of its text.

    It must come to the same whenever it is done: what was put in is taken out by it.
    """
    lines = data.split(b"\n")
    parts = PurePosixPath(path).parts[-2:]
    place = words_of(" ".join(parts).encode("utf-8", "replace"))
    for chunk in chunks:
        title = words_of(chunk.title.encode("utf-8", "replace"))
        yield chunk, f"{title} {place}", words_of(b"\n".join(lines[chunk.first - 1 : chunk.last]))
