"""A parsed note: title, tags and aliases, and sections with their line numbers.

Tags come from the front matter and from the text: `#word` and `#outer/inner`, but not in code, and
not digits only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final, NamedTuple

from dodona.tools.vault.notes.front_matter import (
    MAX_NAME_CHARS,
    MAX_TAGS,
    one_line,
    read_front_matter,
)

MAX_SECTION_CHARS: Final = 1_200  # longer sections are split between paragraphs
MAX_TITLE_CHARS: Final = MAX_NAME_CHARS
MAX_SECTIONS: Final = 3_000

_HEADING: Final = re.compile(r" {0,3}(#{1,6})[ \t]+(\S.*)")
_FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})")
_CODE_SPAN: Final = re.compile(r"(`++)(?!`).*?(?<!`)\1(?!`)")
_TAG: Final = re.compile(r"(?<!\S)#([\w/-]*[^\W\d][\w/-]*)")
_FENCE_MARKS: Final = frozenset(" `~")  # first characters of a fence


@dataclass(frozen=True, slots=True)
class NoteSection:
    """Lines `first` to `last` of a note, counted from 1, and the headings above them."""

    first: int
    last: int
    headings: tuple[str, ...]
    text: str


@dataclass(frozen=True, slots=True)
class Note:
    """A parsed note."""

    path: str
    title: str
    tags: tuple[str, ...]
    aliases: tuple[str, ...]
    sections: tuple[NoteSection, ...]
    lines: int


class _Heading(NamedTuple):
    line_index: int  # index of its line
    level: int
    text: str


def parse_note(path: str, text: str) -> Note:
    """Parse a note. Never fails, whatever the file contains."""
    lines = [line.rstrip() for line in text.removesuffix("\n").split("\n")]
    front = read_front_matter(lines)
    headings, tags = _outline(lines, front.end)
    first = next((heading.text for heading in headings if heading.text), "")
    return Note(
        path=path,
        title=front.title or first or PurePosixPath(path).stem[:MAX_TITLE_CHARS],
        tags=tuple(dict.fromkeys([*front.tags, *tags]))[:MAX_TAGS],
        aliases=front.aliases,
        sections=tuple(_build_sections(lines, front.end, headings)),
        lines=len(lines),
    )


def _outline(lines: Sequence[str], start: int) -> tuple[list[_Heading], list[str]]:
    """Return the headings and the tags of the text."""
    headings: list[_Heading] = []
    tags: list[str] = []
    fence = ""
    for at, line in enumerate(lines[start:], start=start):
        has_mark = "#" in line
        if line[:1] in _FENCE_MARKS or has_mark:
            if mark := _FENCE.match(line):
                if not fence:
                    fence = mark[1]
                elif mark[1].startswith(fence) and mark.end() == len(line):
                    fence = ""
            elif not fence and (match := _HEADING.fullmatch(line)):
                headings.append(_Heading(at, len(match[1]), _heading_text(match[2])))
        if has_mark and not fence and len(tags) < MAX_TAGS:
            tags += _find_tags(line)
    return headings, tags


def _find_tags(line: str) -> list[str]:
    plain = _CODE_SPAN.sub("`", line) if "`" in line else line
    return [tag for match in _TAG.findall(plain) if (tag := match.strip("/")[:MAX_NAME_CHARS])]


def _heading_text(text: str) -> str:
    """Return the text of a heading without closing marks."""
    closed = text.rstrip("#")
    return one_line(closed if closed != closed.rstrip() else text)


def _build_sections(
    lines: Sequence[str], start: int, headings: Sequence[_Heading]
) -> list[NoteSection]:
    """Split a note into sections at its headings.

    A heading without text below it is not a section, unless the note has nothing else.
    """
    ends = [*(heading.line_index for heading in headings), len(lines)]
    sections = [
        NoteSection(b + 1, e, (), "\n".join(lines[b:e]))
        for b, e in _split_spans(lines, start, ends[0])
    ]
    headings_only: list[NoteSection] = []
    parents: list[_Heading] = []
    for heading, end in zip(headings, ends[1:], strict=True):
        while parents and parents[-1].level >= heading.level:
            parents.pop()
        parents.append(heading)
        titles = tuple(parent.text for parent in parents if parent.text)
        for first, last in _split_spans(lines, heading.line_index, end):
            is_bare = first == heading.line_index and last == first + 1
            section = NoteSection(first + 1, last, titles, "\n".join(lines[first:last]))
            (headings_only if is_bare else sections).append(section)
        if max(len(sections), len(headings_only)) >= MAX_SECTIONS:
            break
    return (sections or headings_only)[:MAX_SECTIONS]


def _split_spans(lines: Sequence[str], begin: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the lines as one span, or split a long section, preferably at blank lines."""
    if sum(map(len, lines[begin:end])) + end - begin <= MAX_SECTION_CHARS:
        yield from _trim_blank_lines(lines, begin, end)
        return
    size, blank = 0, 0
    for at in range(begin, end):
        line = lines[at]
        if size + len(line) > MAX_SECTION_CHARS and at > begin:
            cut = blank if blank > begin else at
            yield from _trim_blank_lines(lines, begin, cut)
            begin = cut
            size = sum(len(kept_line) + 1 for kept_line in lines[begin:at])
        if not line:
            blank = at
        size += len(line) + 1
    yield from _trim_blank_lines(lines, begin, end)


def _trim_blank_lines(lines: Sequence[str], begin: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the span without blank lines around it; nothing if all are blank."""
    while begin < end and not lines[begin]:
        begin += 1
    while begin < end and not lines[end - 1]:
        end -= 1
    if begin < end:
        yield begin, end
