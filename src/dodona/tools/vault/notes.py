"""A note: its title and tags, and its sections with the lines they are in.

Front matter is a block between two lines of `---` at the beginning. Of it, `title: text` and
`tags:` are understood; tags as `[a, b]`, as `a, b`, or as a list of `- a` below.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import PurePosixPath
from typing import Final

LONGEST_SECTION: Final = 1_200  # in characters; what is longer is cut between paragraphs
LONGEST_TITLE: Final = 120
MOST_TAGS: Final = 30
MOST_SECTIONS: Final = 3_000
MOST_FRONT_LINES: Final = 100

_HEADING = re.compile(r" {0,3}(#{1,6})[ \t]+(\S.*)")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")


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
    sections: tuple[Section, ...]
    lines: int


def parse_note(path: str, text: str) -> Note:
    """Never fails: whatever is in the file, it is a note."""
    lines = text.removesuffix("\n").split("\n")
    body, front = _front_matter(lines)
    found = (part for section in _sections(lines, body) for part in _parts(section) if part.text)
    parts = list(islice(found, MOST_SECTIONS))
    sections = list(filter(_says_something, parts)) or parts
    first = next((s.headings[0] for s in sections if s.headings), "")
    title = _one_line(front.get("title", "")) or first or PurePosixPath(path).stem
    return Note(
        path=path,
        title=title[:LONGEST_TITLE],
        tags=_tags(front.get("tags", "")),
        sections=tuple(sections),
        lines=len(lines),
    )


def _front_matter(lines: Sequence[str]) -> tuple[int, dict[str, str]]:
    """The index of the first line behind the front matter, and what it says."""
    if lines[0].rstrip() != "---":
        return 0, {}
    said: dict[str, str] = {}
    key = ""
    for at, line in enumerate(lines[1:MOST_FRONT_LINES], start=1):
        if line.rstrip() in {"---", "..."}:
            return at + 1, said
        if match := re.match(r"(\w[\w-]*):[ \t]*(.*)", line):
            key = match[1].lower()
            said[key] = match[2].strip()
        elif key and (item := re.match(r"[ \t]*-[ \t]+(.*)", line)):
            said[key] += f",{item[1]}"
    return 0, {}  # it never ends, so it is a rule and no front matter


def _tags(text: str) -> tuple[str, ...]:
    bare = text.strip().removeprefix("[").removesuffix("]")
    tags = (_one_line(tag).lstrip("#") for tag in bare.split(","))
    return tuple(dict.fromkeys(tag for tag in tags if tag))[:MOST_TAGS]


def _one_line(text: str) -> str:
    """Plain words: no quotes around them, no line ends within."""
    plain = " ".join(text.split())
    if len(plain) > 1 and plain[0] == plain[-1] and plain[0] in "'\"":
        plain = plain[1:-1]
    return plain.strip()[:LONGEST_TITLE]


def _sections(lines: Sequence[str], start: int) -> Iterator[Section]:
    """From each heading to the line before the next one."""
    above: list[tuple[int, str]] = []
    fence, begin = "", start
    for at in range(start, len(lines)):
        line = lines[at].rstrip("\r")
        if mark := _FENCE.match(line):
            if not fence:
                fence = mark[1]
            elif mark[1].startswith(fence) and not line[mark.end() :].strip():
                fence = ""
        found = None if fence else _HEADING.fullmatch(line)
        if found:
            yield _section(lines, begin, at, above)
            above = [known for known in above if known[0] < len(found[1])]
            above.append((len(found[1]), _heading(found[2])))
            begin = at
    yield _section(lines, begin, len(lines), above)


def _heading(text: str) -> str:
    """Without the marks that may close it."""
    bare = text.rstrip()
    closed = bare.rstrip("#")
    return _one_line(closed if closed != closed.rstrip() else bare)


def _section(
    lines: Sequence[str], begin: int, end: int, above: Sequence[tuple[int, str]]
) -> Section:
    """Lines from `begin` up to `end`, without the blank ones around them."""
    while begin < end and not lines[begin].strip():
        begin += 1
    while begin < end and not lines[end - 1].strip():
        end -= 1
    text = "\n".join(line.rstrip() for line in lines[begin:end])
    return Section(begin + 1, end, tuple(heading for _, heading in above if heading), text)


def _parts(section: Section) -> Iterator[Section]:
    """The section, or the parts of a long one, cut at a blank line or else at any."""
    lines = section.text.split("\n")
    begin, size, blank = 0, 0, 0
    for at, line in enumerate(lines):
        if size + len(line) > LONGEST_SECTION and at > begin:
            end = blank if blank > begin else at
            yield _within(section, lines, begin, end)
            begin = end
            size = sum(len(known) + 1 for known in lines[begin:at])
        if not line:
            blank = at
        size += len(line) + 1
    yield _within(section, lines, begin, len(lines))


def _within(section: Section, lines: Sequence[str], begin: int, end: int) -> Section:
    part = _section(lines, begin, end, ())
    before = section.first - 1
    return Section(before + part.first, before + part.last, section.headings, part.text)


def _says_something(section: Section) -> bool:
    """A heading alone says nothing that the titles of what is below it do not say."""
    return any(line and not _HEADING.fullmatch(line) for line in section.text.split("\n"))
