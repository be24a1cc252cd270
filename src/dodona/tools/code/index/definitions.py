"""Where names are defined, by the symbols of an index."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from pathlib import PurePosixPath
from typing import Final

from dodona.core.domain.knowledge.code import Definition
from dodona.tools.code.files.folders import is_test

MAX_NAME_CHARS: Final = 200
MAX_ROWS: Final = 200  # of one name that are compared
MAX_OWNERS: Final = 200
MAX_COMPARED_NAMES: Final = 400  # names that a wrong one is compared with
MAX_SUGGESTIONS: Final = 3

_COLUMNS: Final = "s.name, s.kind, f.path, s.first, s.last, s.signature, s.container"
_FROM: Final = "FROM symbols s JOIN files f ON f.id = s.file"
_SEPARATOR = re.compile(r"\.|::|(?<=\w)#|->|/|\\")  # a private name of JavaScript begins with #

# A class comes before a variable of its name.
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
    """What a name is in, and the name itself: `Meter.reserve`, `std::vec::Vec`, `reserve()`."""
    text = name[:MAX_NAME_CHARS].strip().removesuffix("()")
    parts = [part for part in _SEPARATOR.split(text) if part]
    return (tuple(parts[:-1]), parts[-1]) if parts else ((), "")


def find_definitions(db: sqlite3.Connection, name: str, limit: int) -> list[Definition]:
    """Those of the name; else of one in another case; else of the nearest names there are."""
    owners, last = split_name(name)
    if not last:
        return []
    found = _find_in_owner(db, owners, last) if owners else _find_by_name(db, last, is_exact=True)
    found = (
        found or _find_by_name(db, last, is_exact=True) or _find_by_name(db, last, is_exact=False)
    )
    if not found:
        found = [
            each
            for near in nearest_names(db, last)
            for each in _find_by_name(db, near, is_exact=True)
        ]
        return found[:limit]
    return sorted(found, key=_sort_key)[:limit]


def nearest_names(db: sqlite3.Connection, name: str) -> list[str]:
    """The names that are most like one that is not there; those that begin otherwise are not."""
    found: dict[str, None] = {}
    # The more they have in common the earlier: of a short beginning there are too many.
    for length in (len(name) * 3 // 4, len(name) // 2, 2):
        start = name[: max(min(length, len(name) - 1), 1)]
        rows = db.execute(
            "SELECT DISTINCT name FROM symbols WHERE name >= ? COLLATE NOCASE"
            " AND name < ? COLLATE NOCASE AND abs(length(name) - ?) <= 3 LIMIT ?",
            (start, f"{start}\U0010ffff", len(name), MAX_COMPARED_NAMES - len(found)),
        )
        found.update((row[0], None) for row in rows)
    return get_close_matches(name[:80], found, n=MAX_SUGGESTIONS, cutoff=0.7)


def _find_by_name(db: sqlite3.Connection, name: str, *, is_exact: bool) -> list[Definition]:
    exactly = "AND s.name = ?" if is_exact else "AND ? IS NOT NULL"
    found = db.execute(
        f"SELECT {_COLUMNS} {_FROM} WHERE s.name = ? COLLATE NOCASE {exactly} LIMIT ?",
        (name, name, MAX_ROWS),
    )
    return [Definition(*row) for row in found]


def _find_in_owner(db: sqlite3.Connection, owners: Sequence[str], name: str) -> list[Definition]:
    """Definitions in a class or the like of that name; else in a file of that name."""
    found = _find_by_name(db, name, is_exact=True)
    if len(found) >= MAX_ROWS:  # there are more: look where the class is
        found += _find_beside_owner(db, owners[-1], name)
    inside = [each for each in found if _ends_with(each.container.split("."), owners)]
    inside = inside or [each for each in found if _is_in_module(each, owners)]
    return list(dict.fromkeys(inside))


def _find_beside_owner(db: sqlite3.Connection, owner: str, name: str) -> list[Definition]:
    """Definitions in the files that define a class or the like."""
    files = db.execute(
        "SELECT DISTINCT f.symbol, f.symbols FROM symbols s JOIN files f ON f.id = s.file"
        " WHERE s.name = ? COLLATE NOCASE LIMIT ?",
        (owner, MAX_OWNERS),
    ).fetchall()
    found: list[Definition] = []
    for first, count in files:
        rows = db.execute(
            f"SELECT {_COLUMNS} {_FROM} WHERE s.id >= ? AND s.id < ? AND s.name = ?",
            (first, first + count, name),
        )
        found += [Definition(*row) for row in rows]
    return found


def is_owned_by(definition: Definition, owners: Sequence[str]) -> bool:
    """Is it in what a name says that it is in?"""
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
    """The innermost definition around each line, by (name, container, first, last)."""
    known = sorted(symbols, key=lambda s: (s[2], -s[3]))
    found: dict[int, str] = {}
    for line in lines:
        around = [s for s in known if s[2] <= line <= s[3] and s[2] < s[3]]
        if around:
            name, container, *_ = around[-1]
            found[line] = f"{container}.{name}" if container else name
    return found
