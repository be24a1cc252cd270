"""A plain number in the place of a section: `daily = 500000` is `daily.tokens = 500000`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dodona.app.config import shape as schema
from dodona.documents import Document, KeyPath


def expand(document: Document | None) -> tuple[dict[str, Any], Mapping[KeyPath, int]]:
    """What the file says and where, with the key of every plain number; nothing of none."""
    if document is None:
        return {}, {}
    table, lines = document.table, document.lines
    places = [path for path in _NUMBERS if type(found_at(table, path)) is int]
    for path in places:
        lines = {**lines, key_of(path): lines[path]}
        above = found_at(table, path[:-1])
        above[path[-1]] = {key_of(path)[-1]: above[path[-1]]}
    return table, lines


def key_of(path: KeyPath) -> KeyPath:
    """The key that a plain number at this path is for; the path itself where none may stand."""
    section = schema.section(schema.at(path))
    return (*path, section.number_is) if section and section.number_is else path


def found_at(table: Any, path: KeyPath) -> Any:
    """What a file has at this path; None where it has nothing."""
    for name in path:
        table = table.get(str(name)) if schema.is_table(table) else None
    return table


_NUMBERS: tuple[KeyPath, ...] = tuple(
    path
    for section in schema.fields(())
    for name in schema.fields((section,))
    if key_of(path := (section, name)) != path
)
