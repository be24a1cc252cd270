"""Shorthand for sections: `daily = 500000` means `daily.tokens = 500000`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dodona.app.config import shape
from dodona.documents import Document, KeyPath


def expand_shorthand(document: Document | None) -> tuple[dict[str, Any], Mapping[KeyPath, int]]:
    """Return the file's table and lines with all shorthands expanded; empty without a file."""
    if document is None:
        return {}, {}
    table, lines = document.table, document.lines
    paths = [path for path in _SHORTHAND_PATHS if type(value_at(table, path)) is int]
    for path in paths:
        lines = {**lines, shorthand_key(path): lines[path]}
        parent = value_at(table, path[:-1])
        parent[path[-1]] = {shorthand_key(path)[-1]: parent[path[-1]]}
    return table, lines


def shorthand_key(path: KeyPath) -> KeyPath:
    """Return the key that a plain number at this path sets; the path itself if not a shorthand."""
    section = shape.section_type(shape.at(path))
    return (*path, section.shorthand_key) if section and section.shorthand_key else path


def value_at(table: Any, path: KeyPath) -> Any:
    """Return the value at the path, or None if there is none."""
    for name in path:
        table = table.get(str(name)) if shape.is_table(table) else None
    return table


_SHORTHAND_PATHS: tuple[KeyPath, ...] = tuple(
    path
    for section in shape.fields(())
    for name in shape.fields((section,))
    if shorthand_key(path := (section, name)) != path
)
