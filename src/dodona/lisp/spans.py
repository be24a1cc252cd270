"""Positions in a text: two offsets, from which line and column are computed on demand."""

from __future__ import annotations

import re
import unicodedata
from array import array
from bisect import bisect_right
from functools import cached_property
from typing import NamedTuple

from dodona.core.errors import SourceLocation

_NEWLINE = re.compile("\n")
# Columns of a line that an excerpt shows on each side of its caret.
_EXCERPT_BEFORE = 60
_EXCERPT_AFTER = 40


class Source:
    """A text and its name. Lines end only at a newline character."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text

    @cached_property
    def _line_starts(self) -> array[int]:
        starts = array("Q", (0,))
        starts.extend(match.end() for match in _NEWLINE.finditer(self.text))
        return starts

    def position(self, offset: int) -> tuple[int, int]:
        """Return line and column of an offset, both from 1; a column is a code point."""
        line = bisect_right(self._line_starts, offset)
        return line, offset - self._line_starts[line - 1] + 1

    def excerpt(self, offset: int) -> str:
        """Return the line of the offset, with a caret under the offset."""
        line, column = self.position(offset)
        before = self.text[max(offset - column + 1, offset - _EXCERPT_BEFORE - 1) : offset]
        after = self.text[offset : offset + _EXCERPT_AFTER + 1].partition("\n")[0].rstrip("\r")
        if len(before) > _EXCERPT_BEFORE:
            before = f"…{before[-_EXCERPT_BEFORE:]}"
        if len(after) > _EXCERPT_AFTER:
            after = f"{after[:_EXCERPT_AFTER]}…"
        before, after = _replace_unprintable(before), _replace_unprintable(after)
        source_line = f"  {line} | {before}{after}".rstrip()
        gutter = " " * len(str(line))
        return f"{source_line}\n  {gutter} | {_padding(before)}^"


class Span(NamedTuple):
    """A stretch of a text, from the code point at `start` to just before `end`.

    A tuple, because the reader creates one per form: it costs half as much as a frozen dataclass.
    """

    source: Source
    start: int
    end: int

    @property
    def file(self) -> str:
        return self.source.name

    @property
    def line(self) -> int:
        return self.source.position(self.start)[0]

    @property
    def column(self) -> int:
        return self.source.position(self.start)[1]

    def location(self) -> SourceLocation:
        """Return the position of the first code point, as shown in errors."""
        line, column = self.source.position(self.start)
        return SourceLocation(self.file, line, column, self.source.excerpt(self.start))

    def __str__(self) -> str:
        line, column = self.source.position(self.start)
        return f"{self.file}:{line}:{column}"


def _replace_unprintable(text: str) -> str:
    """Replace the characters that a terminal would interpret instead of show."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\t" else "\N{REPLACEMENT CHARACTER}" for c in text)


def _padding(text: str) -> str:
    """Return blanks as wide as the text; tabs stay tabs."""
    return "".join("\t" if c == "\t" else " " * _display_width(c) for c in text)


def _display_width(character: str) -> int:
    if unicodedata.category(character) in {"Mn", "Me"}:
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
