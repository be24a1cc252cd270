"""What an index holds of a note: its rows, put in and taken out.

The rows of sections are numbered in the order in which they came, and no number is used again: the
highest are the newest.
"""

from __future__ import annotations

import sqlite3
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from dodona.tools.vault.notes.files import NoteContent, NoteStamp
from dodona.tools.vault.notes.links import find_links
from dodona.tools.vault.notes.notes import Note, NoteSection, parse_note

MAX_LINK_LINE_CHARS: Final = 300  # of a line with a link that is kept
MAX_LINKS: Final = 20_000  # of one note

_SEPARATOR: Final = "\n"  # no tag and no alias has a line end in it


@dataclass(frozen=True, slots=True)
class ParsedNote:
    """A note as it was read; `is_settled` when its stamp tells every later change."""

    note: Note
    stamp: NoteStamp
    is_settled: bool
    links: tuple[tuple[int, str, str], ...]  # line, its text, target


def parse_content(path: str, content: NoteContent, *, is_settled: bool) -> ParsedNote:
    text = content.text
    return ParsedNote(parse_note(path, text), content.stamp, is_settled, tuple(_link_rows(text)))


def indexed_stamps(db: sqlite3.Connection) -> dict[str, NoteStamp | None]:
    """Every note with its stamp; none when it may have changed behind it."""
    rows = db.execute("SELECT path, mtime_ns, size, is_settled FROM notes")
    return {
        path: NoteStamp(mtime, size) if settled else None for path, mtime, size, settled in rows
    }


def is_indexed(db: sqlite3.Connection, parsed: ParsedNote) -> bool:
    """Are the rows of a note made of this reading, or of one that was the same?"""
    found = db.execute(
        "SELECT mtime_ns, size FROM notes WHERE path = ? AND is_settled", (parsed.note.path,)
    ).fetchone()
    return found is not None and NoteStamp(*found) == parsed.stamp


def notes_below(db: sqlite3.Connection, folder: str) -> set[str]:
    """The known notes of a folder and of those below it."""
    inside = f"{folder}/"
    found = db.execute(
        "SELECT path FROM notes WHERE path > ? AND path < ?",
        (inside, f"{folder}{chr(ord('/') + 1)}"),
    )
    return {row[0] for row in found}


def insert_notes(db: sqlite3.Connection, notes: Sequence[ParsedNote]) -> int:
    """Make these the rows of their notes; the number after which their sections begin."""
    delete_notes(db, [each.note.path for each in notes])
    (note_id,) = db.execute("SELECT coalesce(max(id), 0) FROM notes").fetchone()
    (before,) = db.execute("SELECT last_section FROM state").fetchone()
    numbered = list(enumerate(notes, start=note_id + 1))
    sections = [
        (number, section, each.note) for number, each in numbered for section in each.note.sections
    ]
    db.executemany(
        "INSERT INTO notes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (_note_row(number, each) for number, each in numbered),
    )
    db.executemany(
        "INSERT INTO aliases VALUES (?, ?)",
        ((n, name_of(alias)) for n, each in numbered for alias in each.note.aliases),
    )
    db.executemany(
        "INSERT INTO links VALUES (?, ?, ?, ?, ?)",
        ((n, *link, name_of(link[2])) for n, each in numbered for link in each.links),
    )
    db.executemany(
        "INSERT INTO sections VALUES (?, ?, ?, ?, ?, ?)",
        (
            (
                before + at,
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
    return before


def index_words(db: sqlite3.Connection, after: int) -> None:
    """Let the words of the sections after a number be found."""
    db.execute(
        "INSERT INTO words (rowid, names, headings, body, labels)"
        " SELECT s.id, n.names, s.headings, s.body, n.labels FROM sections s"
        " JOIN notes n ON n.id = s.note WHERE s.id > ?",
        (after,),
    )


def delete_notes(db: sqlite3.Connection, paths: Iterable[str]) -> None:
    """Forget these notes, as far as they are known."""
    for path in paths:
        found = db.execute("SELECT id FROM notes WHERE path = ?", (path,)).fetchone()
        if found is None:
            continue
        db.execute(
            "INSERT INTO words (words, rowid, names, headings, body, labels)"
            " SELECT 'delete', s.id, n.names, s.headings, s.body, n.labels FROM sections s"
            " JOIN notes n ON n.id = s.note WHERE n.id = ?",
            found,
        )
        gone = db.execute("DELETE FROM sections WHERE note = ?", found).rowcount
        db.execute("UPDATE state SET sections = sections - ?", (gone,))
        db.execute("DELETE FROM links WHERE note = ?", found)
        db.execute("DELETE FROM aliases WHERE note = ?", found)
        db.execute("DELETE FROM notes WHERE id = ?", found)


def name_of(target: str) -> str:
    """What notes and links are matched by: the last part of a path, without `.md`."""
    last = target.replace("\\", "/").rstrip("/").rpartition("/")[2].strip()
    bare = last[: -len(".md")] if last.lower().endswith(".md") else last
    return bare.casefold() if bare.isascii() else unicodedata.normalize("NFC", bare).casefold()


def split_tags(column: str) -> tuple[str, ...]:
    return tuple(column.split(_SEPARATOR)) if column else ()


def _note_row(number: int, parsed: ParsedNote) -> tuple[int | str, ...]:
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
    )


def _headings(section: NoteSection, note: Note) -> str:
    return " > ".join(heading for heading in section.headings if heading != note.title)


def _link_rows(text: str) -> Iterable[tuple[int, str, str]]:
    """Every link with its line, cut around it when it is long."""
    for number, link in enumerate(find_links(text)):
        if number == MAX_LINKS:
            return
        begin = max(text.rfind("\n", 0, link.start) + 1, link.start - MAX_LINK_LINE_CHARS // 2)
        end = text.find("\n", link.end)
        line = text[begin : min(len(text) if end < 0 else end, begin + MAX_LINK_LINE_CHARS)]
        yield link.line, " ".join(line.split()), link.target
