"""Finds definitions and uses of a name.

Definitions are in the index. For uses it gives candidate files, and their current text the lines:
so line numbers are right even in a file that has just changed.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import PurePosixPath
from time import monotonic
from typing import Final

from dodona.core.domain.knowledge.code import Definition, Reference
from dodona.tools.code.files.folders import CodeFolders, is_test, read_below, text_of, version_of
from dodona.tools.code.parsing.extraction import extract
from dodona.tools.code.parsing.grammar import TEXT
from dodona.tools.code.parsing.references_in_file import find_uses

MAX_NAME_CHARS: Final = 200
MAX_ROWS: Final = 200  # definitions of one name that are considered
MAX_OWNERS: Final = 200
MAX_COMPARED_NAMES: Final = 400  # names considered as suggestions
MAX_SUGGESTIONS: Final = 3

_COLUMNS: Final = "s.name, s.kind, f.path, s.first, s.last, s.signature, s.container"
_FROM: Final = "FROM symbols s JOIN files f ON f.id = s.file"
_SEPARATOR = re.compile(r"\.|::|(?<=\w)#|->|/|\\")  # a private JavaScript name starts with #

# A class sorts before a variable with the same name.
_KIND_ORDER: Final = {
    kind: place
    for place, kinds in enumerate(
        (
            ("class", "interface", "struct", "trait", "enum", "type", "module", "namespace"),
            ("function", "macro"),
            ("method", "constructor"),
            ("constant",),
        )
    )
    for kind in kinds
}
_OTHER_KIND_ORDER: Final = 9


def split_name(name: str) -> tuple[tuple[str, ...], str]:
    """Split a name into its owners and the name: `Meter.reserve`, `std::vec::Vec`, `reserve()`."""
    text = name[:MAX_NAME_CHARS].strip().removesuffix("()")
    parts = [part for part in _SEPARATOR.split(text) if part]
    return (tuple(parts[:-1]), parts[-1]) if parts else ((), "")


def find_definitions(db: sqlite3.Connection, name: str, limit: int) -> list[Definition]:
    """Return exact matches, else matches in other case, else the nearest names."""
    owners, last = split_name(name)
    if not last:
        return []
    matches = _find_in_owner(db, owners, last) if owners else _find_by_name(db, last, is_exact=True)
    matches = (
        matches or _find_by_name(db, last, is_exact=True) or _find_by_name(db, last, is_exact=False)
    )
    if not matches:
        matches = [
            definition
            for nearby_name in nearest_names(db, last)
            for definition in _find_by_name(db, nearby_name, is_exact=True)
        ]
        return matches[:limit]
    return sorted(matches, key=_sort_key)[:limit]


def nearest_names(db: sqlite3.Connection, name: str) -> list[str]:
    """Return the names most similar to a missing one, with the same beginning."""
    candidates: dict[str, None] = {}
    # Longer common prefixes first: a short prefix matches too many names.
    for length in (len(name) * 3 // 4, len(name) // 2, 2):
        start = name[: max(min(length, len(name) - 1), 1)]
        rows = db.execute(
            "SELECT DISTINCT name FROM symbols WHERE name >= ? COLLATE NOCASE"
            " AND name < ? COLLATE NOCASE AND abs(length(name) - ?) <= 3 LIMIT ?",
            (start, f"{start}\U0010ffff", len(name), MAX_COMPARED_NAMES - len(candidates)),
        )
        candidates.update((row[0], None) for row in rows)
    return get_close_matches(name[:80], candidates, n=MAX_SUGGESTIONS, cutoff=0.7)


def _find_by_name(db: sqlite3.Connection, name: str, *, is_exact: bool) -> list[Definition]:
    exact_clause = "AND s.name = ?" if is_exact else "AND ? IS NOT NULL"
    rows = db.execute(
        f"SELECT {_COLUMNS} {_FROM} WHERE s.name = ? COLLATE NOCASE {exact_clause} LIMIT ?",
        (name, name, MAX_ROWS),
    )
    return [Definition(*row) for row in rows]


def _find_in_owner(db: sqlite3.Connection, owners: Sequence[str], name: str) -> list[Definition]:
    """Return definitions in a class (or similar) with that name; else in a module."""
    matches = _find_by_name(db, name, is_exact=True)
    if len(matches) >= MAX_ROWS:  # the list was cut: also search where the class is defined
        matches += _find_beside_owner(db, owners[-1], name)
    owned = [match for match in matches if _ends_with(match.container.split("."), owners)]
    owned = owned or [match for match in matches if _is_in_module(match, owners)]
    return list(dict.fromkeys(owned))


def _find_beside_owner(db: sqlite3.Connection, owner: str, name: str) -> list[Definition]:
    """Return definitions in the files that define the class."""
    files = db.execute(
        "SELECT DISTINCT f.symbol, f.symbols FROM symbols s JOIN files f ON f.id = s.file"
        " WHERE s.name = ? COLLATE NOCASE LIMIT ?",
        (owner, MAX_OWNERS),
    ).fetchall()
    matches: list[Definition] = []
    for first, count in files:
        rows = db.execute(
            f"SELECT {_COLUMNS} {_FROM} WHERE s.id >= ? AND s.id < ? AND s.name = ?",
            (first, first + count, name),
        )
        matches += [Definition(*row) for row in rows]
    return matches


def is_owned_by(definition: Definition, owners: Sequence[str]) -> bool:
    """Whether a definition is in the class or module that a qualified name states."""
    return _ends_with(definition.container.split("."), owners) or _is_in_module(definition, owners)


def _is_in_module(definition: Definition, owners: Sequence[str]) -> bool:
    path = PurePosixPath(definition.path)
    parts = path.parent.parts if path.stem in {"__init__", "index", "mod"} else path.parts
    module = [*parts[:-1], PurePosixPath(parts[-1]).stem] if parts else []
    return _ends_with([*module, *filter(None, definition.container.split("."))], owners)


def _ends_with(parts: Sequence[str], owners: Sequence[str]) -> bool:
    return [p.lower() for p in parts[-len(owners) :]] == [o.lower() for o in owners]


def _sort_key(definition: Definition) -> tuple[bool, int, str, int]:
    return (
        is_test(definition.path),
        _KIND_ORDER.get(definition.kind, _OTHER_KIND_ORDER),
        definition.path,
        definition.first,
    )


def containers_by_line(
    symbols: Iterable[tuple[str, str, int, int]], lines: Iterable[int]
) -> dict[int, str]:
    """Return the innermost definition around each line, from (name, container, first, last)."""
    by_position = sorted(symbols, key=lambda s: (s[2], -s[3]))
    containers: dict[int, str] = {}
    for line in lines:
        enclosing = [s for s in by_position if s[2] <= line <= s[3] and s[2] < s[3]]
        if enclosing:
            name, container, *_ = enclosing[-1]
            containers[line] = f"{container}.{name}" if container else name
    return containers


# -- references ------------------------------------------------------------------------------------

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
