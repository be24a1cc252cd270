"""Where a name is used: the index tells in which files, their present text tells where.

So lines are right even in a file that has just been changed.
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
MAX_SEARCH_SECONDS: Final = 15.0  # less than a call of a tool may take
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
    """Uses of a name: first in the files that define it, then by path; code before other text."""
    _, last = split_name(name)
    found: list[Reference] = []
    until = monotonic() + MAX_SEARCH_SECONDS
    for file in _candidate_files(db, last):
        try:
            root, parts = folders.resolve(file.path)
            data, _ = read_below(root, parts, max_bytes=max_bytes)
        except OSError:
            continue  # gone since
        found += _find_in_file(db, file, data, last)
        if len(found) >= limit or monotonic() > until:
            break
    return found[:limit]


def _find_in_file(
    db: sqlite3.Connection, file: _CandidateFile, data: bytes, name: str
) -> list[Reference]:
    places = find_uses(file.path, data, name)
    if not places:
        return []
    around = containers_by_line(_load_symbols(db, file, data), {use.line for use in places})
    lines = data.split(b"\n")
    return [
        Reference(
            name,
            file.path,
            use.line,
            use.column,
            text_of(lines[use.line - 1]).strip()[:MAX_LINE_CHARS],
            around.get(use.line, ""),
        )
        for use in places
    ]


def _load_symbols(
    db: sqlite3.Connection, file: _CandidateFile, data: bytes
) -> list[tuple[str, str, int, int]]:
    """Those of the file as it is now."""
    if version_of(data) != file.version:
        found = extract(file.path, data).symbols
        return [(s.name, s.container, s.first, s.last) for s in found]
    return db.execute(
        "SELECT name, container, first, last FROM symbols WHERE id >= ? AND id < ?",
        (file.first_symbol_id, file.first_symbol_id + file.symbol_count),
    ).fetchall()


def _candidate_files(db: sqlite3.Connection, name: str) -> list[_CandidateFile]:
    """Files that have the name in them, in code or elsewhere."""
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
