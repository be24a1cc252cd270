"""A plain number in the place of a section: `daily = 500000` is `daily.tokens = 500000`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dodona.app.config import shape as schema
from dodona.documents import Document, KeyPath


def expand_shorthand(document: Document | None) -> tuple[dict[str, Any], Mapping[KeyPath, int]]:
    """What the file says and where, with the key of every plain number; nothing of none."""
    if document is None:
        return {}, {}
    table, lines = document.table, document.lines
    places = [path for path in _SHORTHAND_PATHS if type(value_at(table, path)) is int]
    for path in places:
        lines = {**lines, shorthand_key(path): lines[path]}
        above = value_at(table, path[:-1])
        above[path[-1]] = {shorthand_key(path)[-1]: above[path[-1]]}
    return table, lines


def shorthand_key(path: KeyPath) -> KeyPath:
    """The key that a plain number at this path is for; the path itself where none may stand."""
    section = schema.section_type(schema.at(path))
    return (*path, section.shorthand_key) if section and section.shorthand_key else path


def value_at(table: Any, path: KeyPath) -> Any:
    """What a file has at this path; None where it has nothing."""
    for name in path:
        table = table.get(str(name)) if schema.is_table(table) else None
    return table


_SHORTHAND_PATHS: tuple[KeyPath, ...] = tuple(
    path
    for section in schema.fields(())
    for name in schema.fields((section,))
    if shorthand_key(path := (section, name)) != path
)
