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
from dodona.tools.code.files.folders import Folders
from dodona.tools.code.index.definitions import containers, split_name
from dodona.tools.code.parsing.extraction import extract
from dodona.tools.code.parsing.languages import TEXT
from dodona.tools.code.parsing.references_in_file import uses

MOST_FILES: Final = 5_000
MOST_SECONDS: Final = 15.0  # less than a call of a tool may take
LONGEST_LINE: Final = 200

_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class _File:
    id: int
    path: str
    version: str
    language: str
    symbol: int
    symbols: int


def references(
    db: sqlite3.Connection, folders: Folders, name: str, *, limit: int, max_bytes: int
) -> list[Reference]:
    """Uses of a name: first in the files that define it, then by path; code before other text."""
    _, last = split_name(name)
    found: list[Reference] = []
    until = monotonic() + MOST_SECONDS
    for file in _candidates(db, last):
        try:
            root, parts = folders.find(file.path)
            data, _ = read_below(root, parts, most=max_bytes)
        except OSError:
            continue  # gone since
        found += _in_file(db, file, data, last)
        if len(found) >= limit or monotonic() > until:
            break
    return found[:limit]


def _in_file(db: sqlite3.Connection, file: _File, data: bytes, name: str) -> list[Reference]:
    places = uses(file.path, data, name)
    if not places:
        return []
    around = containers(_symbols(db, file, data), {use.line for use in places})
    lines = data.split(b"\n")
    return [
        Reference(
            name,
            file.path,
            use.line,
            use.column,
            text_of(lines[use.line - 1]).strip()[:LONGEST_LINE],
            around.get(use.line, ""),
        )
        for use in places
    ]


def _symbols(db: sqlite3.Connection, file: _File, data: bytes) -> list[tuple[str, str, int, int]]:
    """Those of the file as it is now."""
    if version_of(data) != file.version:
        found = extract(file.path, data).symbols
        return [(s.name, s.container, s.first, s.last) for s in found]
    return db.execute(
        "SELECT name, container, first, last FROM symbols WHERE id >= ? AND id < ?",
        (file.symbol, file.symbol + file.symbols),
    ).fetchall()


def _candidates(db: sqlite3.Connection, name: str) -> list[_File]:
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
    files = [_File(*row) for row in rows]
    files.sort(key=lambda file: (file.language == TEXT, file.id not in defining, file.path))
    return files[:MOST_FILES]
