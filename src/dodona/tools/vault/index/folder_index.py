"""The list of notes in a folder's `index.md`, between two comment markers.

Text around the markers is kept; the list between them is regenerated.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from dodona.core.errors import ToolRetry
from dodona.tools.vault.notes.links import LinkResolver, link_to
from dodona.tools.vault.notes.notes import Note

INDEX_FILE_NAME: Final = "index.md"
BEGIN_MARKER: Final = "<!-- index: begin -->"
END_MARKER: Final = "<!-- index: end -->"
MAX_SUMMARY_CHARS: Final = 200  # per note

_SENTENCE_END: Final = re.compile(r"(?<=[.!?…。])\s")
_LINK: Final = re.compile(r"!?\[\[(?:[^\[\]|]*\|)?([^\[\]|]*)\]\]|!?\[([^\[\]]*)\]\([^()\s]*\)")
_MARKUP: Final = re.compile(r"<[^<>]*>|<!--|-->|%%|\[\[|\]\]|`+")
_LIST_PREFIX: Final = re.compile(r"\s*(?:[-*+>]|\d{1,9}[.)])\s+")
_NON_PROSE_LINE: Final = re.compile(r"\s*(?:#{1,6}\s|```|~~~|\||<!--|%%|-{3,}\s*$|={3,}\s*$|!\[\[)")


@dataclass(frozen=True, slots=True)
class FolderIndexEntry:
    """A line of the list: a note with its title and summary."""

    path: str
    title: str
    summary: str


def build_entry(note: Note) -> FolderIndexEntry:
    """Return the index entry of a note, with its first sentence."""
    lines = (line for section in note.sections for line in section.text.split("\n"))
    first_line = next(
        (line for line in lines if line.strip() and not _NON_PROSE_LINE.match(line)), ""
    )
    plain = _LINK.sub(
        lambda match: match[1] or match[2] or "", _LIST_PREFIX.sub("", first_line, count=1)
    )
    sentence = _SENTENCE_END.split(" ".join(_MARKUP.sub("", plain).split()), maxsplit=1)[0]
    if len(sentence) > MAX_SUMMARY_CHARS:
        sentence = sentence[: MAX_SUMMARY_CHARS - 1].rstrip() + "…"
    return FolderIndexEntry(note.path, note.title, sentence)


def format_listing(
    entries: Iterable[FolderIndexEntry], *, source: str, resolver: LinkResolver
) -> str:
    """Format the markers with the list between them, for the note `source`."""
    return "\n".join(
        [BEGIN_MARKER, *_format_lines(entries, source=source, resolver=resolver), END_MARKER]
    )


def insert_listing(text: str | None, listing: str, *, title: str) -> str:
    """Replace the list in an index note; create the note if `text` is None."""
    if text is None:
        return f"# {title}\n\n{listing}\n"
    begin = text.find(BEGIN_MARKER)
    if begin < 0:
        gap = "" if not text or text.endswith("\n\n") else "\n" if text.endswith("\n") else "\n\n"
        return f"{text}{gap}{listing}\n"
    end = text.find(END_MARKER, begin)
    if end < 0:
        raise ToolRetry(
            f"the index has a line '{BEGIN_MARKER}' but no '{END_MARKER}' below it.",
            hint="Add the missing line where the list ends.",
        )
    return text[:begin] + listing + text[end + len(END_MARKER) :]


def _format_lines(
    entries: Iterable[FolderIndexEntry], *, source: str, resolver: LinkResolver
) -> Iterator[str]:
    top = PurePosixPath(source).parent
    current = top
    for entry in sorted(entries, key=_sort_key):
        folder = PurePosixPath(entry.path).parent
        if folder != current:
            yield from _format_headings(
                folder.relative_to(top).parts, current.relative_to(top).parts
            )
            current = folder
        link = link_to(entry.path, title=entry.title, resolver=resolver, source=source)
        yield f"- {link}: {entry.summary}" if entry.summary else f"- {link}"


def _format_headings(folders: tuple[str, ...], previous: tuple[str, ...]) -> Iterator[str]:
    """Yield a heading for each folder that is entered, smaller for deeper ones."""
    for depth, name in enumerate(folders):
        if folders[: depth + 1] != previous[: depth + 1]:
            yield from ("", f"{'#' * min(depth + 2, 6)} {_MARKUP.sub(' ', name).strip()}", "")


def _sort_key(entry: FolderIndexEntry) -> tuple[tuple[str, ...], str]:
    """Sort the notes of a folder before those of its subfolders."""
    path = PurePosixPath(entry.path)
    return tuple(part.casefold() for part in path.parent.parts), path.name.casefold()
