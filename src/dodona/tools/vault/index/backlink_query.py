"""Which notes link to a note, as the vault is now.

A link is kept as it is written, for what it means changes when notes come, go and are renamed. It
means a note by its name, or else, as nobody else has that name, by an alias.
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
    """The lines that link to a note, in the order of paths; a line counts once."""
    found = dict.fromkeys(
        Backlink(each.path, each.title, each.line, each.text) for each in _links_to(db, path)
    )
    return list(found)


def notes_linking_to(db: sqlite3.Connection, path: str) -> list[str]:
    """The notes that link to a note, itself too if it does."""
    return list(dict.fromkeys(each.path for each in _links_to(db, path)))


def _links_to(db: sqlite3.Connection, path: str) -> Iterator[_LinkRow]:
    named = name_of(path)
    aliases = db.execute(
        "SELECT a.name FROM aliases a JOIN notes n ON n.id = a.note WHERE n.path = ?", (path,)
    )
    found = [
        each
        for name in sorted({named, *(row[0] for row in aliases)})
        for each in _links_by_name(db, path, name)
    ]
    yield from sorted(found)


def _links_by_name(db: sqlite3.Connection, path: str, name: str) -> Iterator[_LinkRow]:
    """The links by this name that mean the note."""
    same = LinkResolver(
        row[0] for row in db.execute("SELECT path FROM notes WHERE name = ?", (name,))
    )
    also = [row[0] for row in db.execute(_NOTES_BY_ALIAS_SQL, (name,))]
    for row in db.execute(_LINKS_BY_NAME_SQL, (name,)):
        link = _LinkRow(*row)
        meant = same.resolve(link.target, source=link.path)
        if meant is None and also and "/" not in link.target:
            meant = also[0]
        if meant == path:
            yield link


_LINKS_BY_NAME_SQL = (
    "SELECT n.path, n.title, l.line, l.text, l.target FROM links l JOIN notes n ON n.id = l.note"
    " WHERE l.name = ?"
)
_NOTES_BY_ALIAS_SQL = (
    "SELECT n.path FROM aliases a JOIN notes n ON n.id = a.note WHERE a.name = ? ORDER BY n.path"
)
