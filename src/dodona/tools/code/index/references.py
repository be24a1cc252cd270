"""Finds uses of a name: the index gives candidate files, their current text the lines.

So line numbers are right even in a file that has just changed.
"""

from __future__ import annotations

import re
import sqlite3
from dataclasses import dataclass
from time import monotonic
from typing import Final

from dodona.core.domain.knowledge.code import Reference
from dodona.tools.code.files.files import read_below, text_of, version_of
from dodona.tools.code.files.folders import CodeFolders
from dodona.tools.code.index.definitions import containers_by_line, split_name
from dodona.tools.code.parsing.extraction import extract
from dodona.tools.code.parsing.languages import TEXT
from dodona.tools.code.parsing.references_in_file import find_uses

MAX_FILES: Final = 5_000
MAX_SEARCH_SECONDS: Final = 15.0  # less than the timeout of the tool
MAX_LINE_CHARS: Final = 200

_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class _CandidateFile:
    id: int
    path: str
    version: str
    language: str
    first_symbol_id: int
    symbol_count: int


def find_references(
    db: sqlite3.Connection, folders: CodeFolders, name: str, *, limit: int, max_bytes: int
) -> list[Reference]:
    """Return uses of a name: code before other text, then defining files, then by path."""
    _, last = split_name(name)
    references: list[Reference] = []
    deadline = monotonic() + MAX_SEARCH_SECONDS
    for file in _candidate_files(db, last):
        try:
            root, parts = folders.resolve(file.path)
            data, _ = read_below(root, parts, max_bytes=max_bytes)
        except OSError:
            continue  # removed meanwhile
        references += _find_in_file(db, file, data, last)
        if len(references) >= limit or monotonic() > deadline:
            break
    return references[:limit]


def _find_in_file(
    db: sqlite3.Connection, file: _CandidateFile, data: bytes, name: str
) -> list[Reference]:
    uses = find_uses(file.path, data, name)
    if not uses:
        return []
    containers = containers_by_line(_load_symbols(db, file, data), {use.line for use in uses})
    lines = data.split(b"\n")
    return [
        Reference(
            name,
            file.path,
            use.line,
            use.column,
            text_of(lines[use.line - 1]).strip()[:MAX_LINE_CHARS],
            containers.get(use.line, ""),
        )
        for use in uses
    ]


def _load_symbols(
    db: sqlite3.Connection, file: _CandidateFile, data: bytes
) -> list[tuple[str, str, int, int]]:
    """Return the symbols of the file as it is now."""
    if version_of(data) != file.version:
        symbols = extract(file.path, data).symbols
        return [(s.name, s.container, s.first, s.last) for s in symbols]
    return db.execute(
        "SELECT name, container, first, last FROM symbols WHERE id >= ? AND id < ?",
        (file.first_symbol_id, file.first_symbol_id + file.symbol_count),
    ).fetchall()


def _candidate_files(db: sqlite3.Connection, name: str) -> list[_CandidateFile]:
    """Return the files that contain the name, in code or elsewhere."""
    words = _WORD.findall(name.lower())
    if not words:
        return []
    defining = {
        row[0]
        for row in db.execute(
            "SELECT file FROM symbols WHERE name = ? COLLATE NOCASE AND name = ?", (name, name)
        )
    }
    rows = db.execute(
        "SELECT id, path, version, language, symbol, symbols FROM files WHERE id IN"
        " (SELECT file FROM chunks WHERE id IN (SELECT rowid FROM words WHERE words MATCH ?))",
        (" AND ".join(f'body : "{word}"' for word in words),),
    )
    files = [_CandidateFile(*row) for row in rows]
    files.sort(key=lambda file: (file.language == TEXT, file.id not in defining, file.path))
    return files[:MAX_FILES]
