"""The rows of a note in the index: inserting, deleting and finding the links between them.

Section ids increase in insertion order and are never reused: the highest ids are the newest. Links
are stored as written, because their target changes when notes are added, removed or renamed. A link
refers to a note by its name or, if no note has that name, by an alias.
"""

from __future__ import annotations

import sqlite3
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from dodona.core.domain.knowledge.notes import Backlink
from dodona.core.domain.trust import Mark
from dodona.tools.rebuildable_db import IS_BELOW_PATH, path_bounds
from dodona.tools.vault.notes.blocks import note_keys, pack_keys
from dodona.tools.vault.notes.files import NoteContent, NoteStamp
from dodona.tools.vault.notes.links import LinkResolver, find_links
from dodona.tools.vault.notes.marks import MarkLookup
from dodona.tools.vault.notes.notes import Note, NoteSection, parse_note

MAX_LINK_LINE_CHARS: Final = 300  # per stored line with a link
MAX_LINKS: Final = 20_000  # per note

_SEPARATOR: Final = "\n"  # tags and aliases contain no line breaks


@dataclass(frozen=True, slots=True)
class ParsedNote:
    """A note as read; `is_settled` if every later change will change its stamp."""

    note: Note
    stamp: NoteStamp
    is_settled: bool
    links: tuple[tuple[int, str, str], ...]  # line, its text, target
    blocks: bytes  # the keys of its blocks


def parse_content(path: str, content: NoteContent, *, is_settled: bool) -> ParsedNote:
    """Parse the content of a note for the index."""
    text = content.text
    return ParsedNote(
        parse_note(path, text),
        content.stamp,
        is_settled,
        tuple(_link_rows(text)),
        pack_keys(note_keys(path, text)),
    )


def indexed_stamps(db: sqlite3.Connection, path: str = "") -> dict[str, NoteStamp | None]:
    """Return the notes at or below a path with their stamps.

    A stamp is None if the note may have changed without a new one.
    """
    rows = db.execute(
        f"SELECT path, mtime_ns, size, is_settled FROM notes WHERE {IS_BELOW_PATH}",  # noqa: S608
        path_bounds(path),
    )
    return {
        path: NoteStamp(mtime, size) if settled else None for path, mtime, size, settled in rows
    }


def is_indexed(db: sqlite3.Connection, parsed: ParsedNote) -> bool:
    """Whether the index already has this version of a note."""
    row = db.execute(
        "SELECT mtime_ns, size FROM notes WHERE path = ? AND is_settled", (parsed.note.path,)
    ).fetchone()
    return row is not None and NoteStamp(*row) == parsed.stamp


def insert_notes(db: sqlite3.Connection, notes: Sequence[ParsedNote]) -> int:
    """Replace the rows of these notes; return the last section id before them."""
    delete_notes(db, [parsed.note.path for parsed in notes])
    (note_id,) = db.execute("SELECT coalesce(max(id), 0) FROM notes").fetchone()
    (last_section,) = db.execute("SELECT last_section FROM state").fetchone()
    numbered = list(enumerate(notes, start=note_id + 1))
    sections = [
        (number, section, parsed.note)
        for number, parsed in numbered
        for section in parsed.note.sections
    ]
    db.executemany(
        "INSERT INTO notes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (_note_row(number, parsed) for number, parsed in numbered),
    )
    db.executemany(
        "INSERT INTO aliases VALUES (?, ?)",
        ((n, name_of(alias)) for n, parsed in numbered for alias in parsed.note.aliases),
    )
    db.executemany(
        "INSERT INTO links VALUES (?, ?, ?, ?, ?)",
        ((n, *link, name_of(link[2])) for n, parsed in numbered for link in parsed.links),
    )
    db.executemany(
        "INSERT INTO sections VALUES (?, ?, ?, ?, ?, ?)",
        (
            (
                last_section + at,
                number,
                section.first,
                section.last,
                _headings(section, note),
                section.text,
            )
            for at, (number, section, note) in enumerate(sections, start=1)
        ),
    )
    db.execute(
        "UPDATE state SET last_section = last_section + ?, sections = sections + ?",
        (len(sections), len(sections)),
    )
    return last_section


def index_words(db: sqlite3.Connection, after: int) -> None:
    """Add the sections after an id to the full-text index."""
    db.execute(
        "INSERT INTO words (rowid, names, headings, body, labels)"
        " SELECT s.id, n.names, s.headings, s.body, n.labels FROM sections s"
        " JOIN notes n ON n.id = s.note WHERE s.id > ?",
        (after,),
    )


def delete_notes(db: sqlite3.Connection, paths: Iterable[str]) -> None:
    """Delete the rows of these notes, if any."""
    for path in paths:
        row = db.execute("SELECT id FROM notes WHERE path = ?", (path,)).fetchone()
        if row is None:
            continue
        db.execute(
            "INSERT INTO words (words, rowid, names, headings, body, labels)"
            " SELECT 'delete', s.id, n.names, s.headings, s.body, n.labels FROM sections s"
            " JOIN notes n ON n.id = s.note WHERE n.id = ?",
            row,
        )
        removed_count = db.execute("DELETE FROM sections WHERE note = ?", row).rowcount
        db.execute("UPDATE state SET sections = sections - ?", (removed_count,))
        db.execute("DELETE FROM links WHERE note = ?", row)
        db.execute("DELETE FROM aliases WHERE note = ?", row)
        db.execute("DELETE FROM notes WHERE id = ?", row)


def name_of(target: str) -> str:
    """Return the name that notes and links are matched by: the last path part, without `.md`."""
    last = target.replace("\\", "/").rstrip("/").rpartition("/")[2].strip()
    bare = last[: -len(".md")] if last.lower().endswith(".md") else last
    return bare.casefold() if bare.isascii() else unicodedata.normalize("NFC", bare).casefold()


def split_tags(column: str) -> tuple[str, ...]:
    """Split the `tags` column."""
    return tuple(column.split(_SEPARATOR)) if column else ()


def _note_row(number: int, parsed: ParsedNote) -> tuple[int | str | bytes, ...]:
    note = parsed.note
    return (
        number,
        note.path,
        name_of(note.path),
        parsed.stamp.mtime_ns,
        parsed.stamp.size,
        int(parsed.is_settled),
        note.title,
        _SEPARATOR.join(note.tags),
        _SEPARATOR.join((note.title, *note.aliases)),
        _SEPARATOR.join((*note.tags, *note.path[: -len(".md")].split("/"))),
        parsed.blocks,
    )


def _headings(section: NoteSection, note: Note) -> str:
    return " > ".join(heading for heading in section.headings if heading != note.title)


def _link_rows(text: str) -> Iterable[tuple[int, str, str]]:
    """Yield every link with its line; a long line is cut around the link."""
    for number, link in enumerate(find_links(text)):
        if number == MAX_LINKS:
            return
        begin = max(text.rfind("\n", 0, link.start) + 1, link.start - MAX_LINK_LINE_CHARS // 2)
        end = text.find("\n", link.end)
        line = text[begin : min(len(text) if end < 0 else end, begin + MAX_LINK_LINE_CHARS)]
        yield link.line, " ".join(line.split()), link.target


def marks_of_notes(
    db: sqlite3.Connection, lookup: MarkLookup, paths: Iterable[str]
) -> dict[str, tuple[Mark, ...]]:
    """Return the marks of notes, by path."""
    if not lookup:
        return {}
    marks: dict[str, tuple[Mark, ...]] = {}
    for path in set(paths):
        row = db.execute("SELECT blocks FROM notes WHERE path = ?", (path,)).fetchone()
        if row is not None:
            marks[path] = lookup.list_marks(path, row[0])
    return marks


# -- backlinks -------------------------------------------------------------------------------------


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
