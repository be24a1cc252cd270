"""Finds the notes that link to a note.

Links are stored as written, because their target changes when notes are added, removed or renamed.
A link refers to a note by its name or, if no note has that name, by an alias.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import NamedTuple

from dodona.core.domain.knowledge.notes import Backlink
from dodona.tools.vault.index.index_rows import name_of
from dodona.tools.vault.notes.links import LinkResolver


class _LinkRow(NamedTuple):
    path: str
    title: str
    line: int
    text: str
    target: str


def find_backlinks(db: sqlite3.Connection, path: str) -> list[Backlink]:
    """Return the lines that link to a note, sorted by path, without duplicates."""
    backlinks = dict.fromkeys(
        Backlink(link.path, link.title, link.line, link.text) for link in _links_to(db, path)
    )
    return list(backlinks)


def notes_linking_to(db: sqlite3.Connection, path: str) -> list[str]:
    """Return the notes that link to a note, possibly including itself."""
    return list(dict.fromkeys(link.path for link in _links_to(db, path)))


def _links_to(db: sqlite3.Connection, path: str) -> Iterator[_LinkRow]:
    note_name = name_of(path)
    aliases = db.execute(
        "SELECT a.name FROM aliases a JOIN notes n ON n.id = a.note WHERE n.path = ?", (path,)
    )
    links = [
        link
        for name in sorted({note_name, *(row[0] for row in aliases)})
        for link in _links_by_name(db, path, name)
    ]
    yield from sorted(links)


def _links_by_name(db: sqlite3.Connection, path: str, name: str) -> Iterator[_LinkRow]:
    """Yield the links with this name that refer to the note."""
    resolver = LinkResolver(
        row[0] for row in db.execute("SELECT path FROM notes WHERE name = ?", (name,))
    )
    aliased_paths = [row[0] for row in db.execute(_NOTES_BY_ALIAS_SQL, (name,))]
    for row in db.execute(_LINKS_BY_NAME_SQL, (name,)):
        link = _LinkRow(*row)
        target = resolver.resolve(link.target, source=link.path)
        if target is None and aliased_paths and "/" not in link.target:
            target = aliased_paths[0]
        if target == path:
            yield link


_LINKS_BY_NAME_SQL = (
    "SELECT n.path, n.title, l.line, l.text, l.target FROM links l JOIN notes n ON n.id = l.note"
    " WHERE l.name = ?"
)
_NOTES_BY_ALIAS_SQL = (
    "SELECT n.path FROM aliases a JOIN notes n ON n.id = a.note WHERE a.name = ? ORDER BY n.path"
)
