"""A note: its title, tags and aliases, and its sections with the lines they are in.

Tags are those of the front matter, then those in the text: `#word`, `#outer/inner`, not in code,
and not of digits alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final, NamedTuple

from dodona.tools.vault.notes.front_matter import (
    LONGEST_NAME,
    MOST_TAGS,
    one_line,
    read_front_matter,
)

LONGEST_SECTION: Final = 1_200  # in characters; what is longer is cut between paragraphs
LONGEST_TITLE: Final = LONGEST_NAME
MOST_SECTIONS: Final = 3_000

_HEADING: Final = re.compile(r" {0,3}(#{1,6})[ \t]+(\S.*)")
_FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})")
_CODE: Final = re.compile(r"(`++)(?!`).*?(?<!`)\1(?!`)")
_TAG: Final = re.compile(r"(?<!\S)#([\w/-]*[^\W\d][\w/-]*)")
_FENCE_MARKS: Final = frozenset(" `~")  # what a fence begins with


@dataclass(frozen=True, slots=True)
class Section:
    """Lines `first` to `last` of a note, counted from 1, and the headings above them."""

    first: int
    last: int
    headings: tuple[str, ...]
    text: str


@dataclass(frozen=True, slots=True)
class Note:
    path: str
    title: str
    tags: tuple[str, ...]
    aliases: tuple[str, ...]
    sections: tuple[Section, ...]
    lines: int


class _Heading(NamedTuple):
    at: int  # the index of its line
    level: int
    text: str


def parse_note(path: str, text: str) -> Note:
    """Never fails: whatever is in the file, it is a note."""
    lines = [line.rstrip() for line in text.removesuffix("\n").split("\n")]
    front = read_front_matter(lines)
    headings, tags = _outline(lines, front.end)
    first = next((heading.text for heading in headings if heading.text), "")
    return Note(
        path=path,
        title=front.title or first or PurePosixPath(path).stem[:LONGEST_TITLE],
        tags=tuple(dict.fromkeys([*front.tags, *tags]))[:MOST_TAGS],
        aliases=front.aliases,
        sections=tuple(_sections(lines, front.end, headings)),
        lines=len(lines),
    )


def _outline(lines: Sequence[str], start: int) -> tuple[list[_Heading], list[str]]:
    """The headings and the tags of the text."""
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
            elif not fence and (found := _HEADING.fullmatch(line)):
                headings.append(_Heading(at, len(found[1]), _heading(found[2])))
        if has_mark and not fence and len(tags) < MOST_TAGS:
            tags += _tags(line)
    return headings, tags


def _tags(line: str) -> list[str]:
    plain = _CODE.sub("`", line) if "`" in line else line
    return [tag for found in _TAG.findall(plain) if (tag := found.strip("/")[:LONGEST_NAME])]


def _heading(text: str) -> str:
    """Without the marks that may close it."""
    closed = text.rstrip("#")
    return one_line(closed if closed != closed.rstrip() else text)


def _sections(lines: Sequence[str], start: int, headings: Sequence[_Heading]) -> list[Section]:
    """From each heading to the line before the next one.

    A heading alone says nothing that those below it do not say, so it is no section unless the
    note has nothing else.
    """
    ends = [*(heading.at for heading in headings), len(lines)]
    found = [Section(b + 1, e, (), "\n".join(lines[b:e])) for b, e in _spans(lines, start, ends[0])]
    bare: list[Section] = []
    above: list[_Heading] = []
    for heading, end in zip(headings, ends[1:], strict=True):
        while above and above[-1].level >= heading.level:
            above.pop()
        above.append(heading)
        titles = tuple(known.text for known in above if known.text)
        for first, last in _spans(lines, heading.at, end):
            is_bare = first == heading.at and last == first + 1
            section = Section(first + 1, last, titles, "\n".join(lines[first:last]))
            (bare if is_bare else found).append(section)
        if max(len(found), len(bare)) >= MOST_SECTIONS:
            break
    return (found or bare)[:MOST_SECTIONS]


def _spans(lines: Sequence[str], begin: int, end: int) -> Iterator[tuple[int, int]]:
    """The lines as a whole, or the parts of a long section, cut at a blank one or else at any."""
    if sum(map(len, lines[begin:end])) + end - begin <= LONGEST_SECTION:
        yield from _span(lines, begin, end)
        return
    size, blank = 0, 0
    for at in range(begin, end):
        line = lines[at]
        if size + len(line) > LONGEST_SECTION and at > begin:
            cut = blank if blank > begin else at
            yield from _span(lines, begin, cut)
            begin = cut
            size = sum(len(known) + 1 for known in lines[begin:at])
        if not line:
            blank = at
        size += len(line) + 1
    yield from _span(lines, begin, end)


def _span(lines: Sequence[str], begin: int, end: int) -> Iterator[tuple[int, int]]:
    """Lines from `begin` up to `end`, without the blank ones around them; none if all are."""
    while begin < end and not lines[begin]:
        begin += 1
    while begin < end and not lines[end - 1]:
        end -= 1
    if begin < end:
        yield begin, end
