"""The database of a code index: its tables, and how files are inserted and deleted.

It stores the compressed text of each file: the lines of a hit are those that were indexed, and the
words of a file can be removed from the full-text index again. Chunks and symbols of a file have
consecutive ids, so no index is needed to find them.
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

from dodona.tools.code.files.folders import SourceStamp
from dodona.tools.code.index.tokenize import words_of
from dodona.tools.code.parsing.extracted import CodeChunk, ExtractedFile
from dodona.tools.rebuildable_db import IS_BELOW_PATH, DatabaseFormat, path_bounds

MAX_SIGNATURE_CHARS: Final = 300
MIN_NAME_CHARS: Final = 3  # shorter names do not connect files
NOT_TEXT: Final = ""  # the `language` of a binary file

_Row: TypeAlias = tuple[object, ...]
_EMPTY_EXTRACTION: Final = ExtractedFile(NOT_TEXT, (), (), (), frozenset())

# Words are stored by column and without positions: two thirds of the size and of the time. FTS5
# cannot compute BM25 from this; see search.py.
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
    label="code index",
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
    """A file that was read and is ready to insert; `extracted` is None if it is binary."""

    path: str
    stamp: SourceStamp
    version: str
    data: bytes
    extracted: ExtractedFile | None


def load_indexed_files(db: sqlite3.Connection, path: str = "") -> dict[str, IndexedFile]:
    """Return the indexed files at or below a path, by path."""
    columns = "path, id, mtime_ns, size, inode, version, language"
    rows = db.execute(
        f"SELECT {columns} FROM files WHERE {IS_BELOW_PATH}",  # noqa: S608 - only constants
        path_bounds(path),
    )
    return {
        path: IndexedFile(number, SourceStamp(mtime_ns, size, inode), version, language)
        for path, number, mtime_ns, size, inode, version, language in rows
    }


def insert_files(db: sqlite3.Connection, files: Sequence[ParsedFile]) -> None:
    """Insert new files, in the caller's transaction."""
    rows = _RowBatch(*_next_ids(db))
    for file in files:
        rows.add(file)
    rows.insert(db)


def delete_files(db: sqlite3.Connection, paths: Iterable[str]) -> None:
    """Delete files, in the caller's transaction."""
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
    """Update the stamps of files that were touched but not changed."""
    db.executemany(
        "UPDATE files SET mtime_ns = ?, size = ?, inode = ? WHERE id = ?",
        [(s.mtime_ns, s.size, s.inode, number) for number, s in files],
    )


def load_text(db: sqlite3.Connection, file: int) -> bytes:
    """Return a file's content as it was indexed."""
    row = db.execute("SELECT text FROM bodies WHERE file = ?", (file,)).fetchone()
    return zlib.decompress(row[0]) if row else b""


def get_state(db: sqlite3.Connection, name: str) -> str:
    """Return a value of the `state` table, or ""."""
    row = db.execute("SELECT value FROM state WHERE name = ?", (name,)).fetchone()
    return row[0] if row else ""


def set_state(db: sqlite3.Connection, name: str, value: str) -> None:
    """Set a value of the `state` table."""
    db.execute("INSERT OR REPLACE INTO state VALUES (?, ?)", (name, value))


def hash_name(name: str) -> int:
    """Hash a name. Collisions are possible and harmless."""
    return zlib.crc32(name.encode("utf-8", "replace"))


@dataclass(slots=True)
class _RowBatch:
    """The rows of some files for each table; the ids are the next free ones."""

    next_file_id: int
    next_chunk_id: int
    next_symbol_id: int
    files: list[_Row] = field(default_factory=list[_Row])
    bodies: list[_Row] = field(default_factory=list[_Row])
    chunks: list[_Row] = field(default_factory=list[_Row])
    symbols: list[_Row] = field(default_factory=list[_Row])
    words: list[_Row] = field(default_factory=list[_Row])

    def add(self, parsed: ParsedFile) -> None:
        extracted = parsed.extracted or _EMPTY_EXTRACTION
        counts = (
            self.next_chunk_id,
            len(extracted.chunks),
            self.next_symbol_id,
            len(extracted.symbols),
        )
        stamp = (parsed.stamp.mtime_ns, parsed.stamp.size, parsed.stamp.inode)
        metadata = (parsed.version, extracted.language)
        self.files.append((self.next_file_id, parsed.path, *stamp, *metadata, *counts))
        if parsed.extracted is not None:
            self._add_content(parsed, extracted)
        self.next_file_id += 1

    def _add_content(self, parsed: ParsedFile, extracted: ExtractedFile) -> None:
        self.bodies.append(_body_row(self.next_file_id, extracted, parsed.data))
        for chunk, head, body in _tokenize_chunks(parsed.path, parsed.data, extracted.chunks):
            size = body.count(" ") + 1
            lines = (chunk.first, chunk.last)
            self.chunks.append((self.next_chunk_id, self.next_file_id, *lines, chunk.title, size))
            self.words.append((self.next_chunk_id, head, body))
            self.next_chunk_id += 1
        for symbol in extracted.symbols:
            fields = (symbol.name, symbol.kind, symbol.first, symbol.last)
            signature = symbol.signature[:MAX_SIGNATURE_CHARS]
            self.symbols.append(
                (self.next_symbol_id, self.next_file_id, *fields, signature, symbol.container)
            )
            self.next_symbol_id += 1

    def insert(self, db: sqlite3.Connection) -> None:
        insert_rows = db.executemany
        insert_rows("INSERT INTO files VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", self.files)
        insert_rows("INSERT INTO bodies VALUES (?, ?, ?, ?)", self.bodies)
        insert_rows("INSERT INTO chunks VALUES (?, ?, ?, ?, ?, ?)", self.chunks)
        insert_rows("INSERT INTO symbols VALUES (?, ?, ?, ?, ?, ?, ?, ?)", self.symbols)
        insert_rows("INSERT INTO words (rowid, head, body) VALUES (?, ?, ?)", self.words)


def _next_ids(db: sqlite3.Connection) -> tuple[int, int, int]:
    """Return the first free id of each table."""
    tables = ("files", "chunks", "symbols")
    max_ids = [db.execute(f"SELECT max(id) FROM {table}").fetchone()[0] for table in tables]  # noqa: S608
    file, chunk, symbol = [(number or 0) + 1 for number in max_ids]
    return file, chunk, symbol


def _body_row(file: int, extracted: ExtractedFile, data: bytes) -> _Row:
    names = array("I", {hash_name(name) for name in extracted.names if len(name) >= MIN_NAME_CHARS})
    imports = [[item.module, *item.names] for item in extracted.imports]
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
    """Yield each chunk with the words of its head and of its body.

    The result must be reproducible: deleting from the full-text index needs the same words again.
    """
    lines = data.split(b"\n")
    parts = PurePosixPath(path).parts[-2:]
    path_words = words_of(" ".join(parts).encode("utf-8", "replace"))
    for chunk in chunks:
        title = words_of(chunk.title.encode("utf-8", "replace"))
        yield (
            chunk,
            f"{title} {path_words}",
            words_of(b"\n".join(lines[chunk.first - 1 : chunk.last])),
        )
