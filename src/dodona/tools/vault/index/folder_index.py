"""The list of a folder's notes that is kept in its `index.md`, between two comments.

What people write around the comments stays; what is between them is made anew.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from dodona.core.errors import ToolRetry
from dodona.tools.vault.notes.links import Names, link_to
from dodona.tools.vault.notes.notes import Note

NAME: Final = "index.md"
BEGIN: Final = "<!-- index: begin -->"
END: Final = "<!-- index: end -->"
LONGEST_LINE: Final = 200  # of what is said about a note

_SENTENCE_END: Final = re.compile(r"(?<=[.!?…。])\s")
_LINK: Final = re.compile(r"!?\[\[(?:[^\[\]|]*\|)?([^\[\]|]*)\]\]|!?\[([^\[\]]*)\]\([^()\s]*\)")
_MARKS: Final = re.compile(r"<[^<>]*>|<!--|-->|%%|\[\[|\]\]|`+")
_LEADING: Final = re.compile(r"\s*(?:[-*+>]|\d{1,9}[.)])\s+")
_UNTELLING: Final = re.compile(r"\s*(?:#{1,6}\s|```|~~~|\||<!--|%%|-{3,}\s*$|={3,}\s*$|!\[\[)")


@dataclass(frozen=True, slots=True)
class Entry:
    path: str
    title: str
    about: str


def entry(note: Note) -> Entry:
    """A note, with the first sentence that it says."""
    lines = (line for section in note.sections for line in section.text.split("\n"))
    told = next((line for line in lines if line.strip() and not _UNTELLING.match(line)), "")
    plain = _LINK.sub(lambda found: found[1] or found[2] or "", _LEADING.sub("", told, count=1))
    sentence = _SENTENCE_END.split(" ".join(_MARKS.sub("", plain).split()), maxsplit=1)[0]
    if len(sentence) > LONGEST_LINE:
        sentence = sentence[: LONGEST_LINE - 1].rstrip() + "…"
    return Entry(note.path, note.title, sentence)


def listing(entries: Iterable[Entry], *, source: str, names: Names) -> str:
    """The comments with the list between them, for the note `source`."""
    return "\n".join([BEGIN, *_lines(entries, source=source, names=names), END])


def with_listing(text: str | None, made: str, *, title: str) -> str:
    """The text of an index with its list made anew; a new one if there is no text yet."""
    if text is None:
        return f"# {title}\n\n{made}\n"
    begin = text.find(BEGIN)
    if begin < 0:
        gap = "" if not text or text.endswith("\n\n") else "\n" if text.endswith("\n") else "\n\n"
        return f"{text}{gap}{made}\n"
    end = text.find(END, begin)
    if end < 0:
        raise ToolRetry(
            f"the index has a line '{BEGIN}' and none with '{END}' below it.",
            hint="Write the missing line where the list ends.",
        )
    return text[:begin] + made + text[end + len(END) :]


def _lines(entries: Iterable[Entry], *, source: str, names: Names) -> Iterator[str]:
    top = PurePosixPath(source).parent
    here = top
    for each in sorted(entries, key=_order):
        folder = PurePosixPath(each.path).parent
        if folder != here:
            yield from _headings(folder.relative_to(top).parts, here.relative_to(top).parts)
            here = folder
        link = link_to(each.path, title=each.title, names=names, source=source)
        yield f"- {link}: {each.about}" if each.about else f"- {link}"


def _headings(folders: tuple[str, ...], before: tuple[str, ...]) -> Iterator[str]:
    """One for each folder that is entered, the deeper the smaller."""
    for depth, name in enumerate(folders):
        if folders[: depth + 1] != before[: depth + 1]:
            yield from ("", f"{'#' * min(depth + 2, 6)} {_MARKS.sub(' ', name).strip()}", "")


def _order(each: Entry) -> tuple[tuple[str, ...], str]:
    """The notes of a folder before those of the folders in it."""
    path = PurePosixPath(each.path)
    return tuple(part.casefold() for part in path.parent.parts), path.name.casefold()
