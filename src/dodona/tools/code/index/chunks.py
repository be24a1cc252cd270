"""Splits a file into chunks at its definitions: each non-blank line is in exactly one chunk.

Small neighbours are joined and large definitions are split. A comment or decorator belongs to the
definition below it. A line is never split, whatever its length.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from tree_sitter import Node

from dodona.tools.code.parsing.extracted import CodeChunk
from dodona.tools.code.parsing.spans import DefinitionSpan

MAX_LINES: Final = 80
MAX_BYTES: Final = 4_000
MAX_JOINED_LINES: Final = 40
MAX_SMALL_LINES: Final = 5  # a shorter definition may be joined with neighbours
MAX_TITLE_CHARS: Final = 200


@dataclass(slots=True)
class _Piece:
    first: int
    last: int
    title: str
    parent_title: str  # title of the enclosing definition
    is_small: bool


class Chunker:
    """Splits one file into chunks, by its lines and definitions."""

    def __init__(
        self, data: bytes, leading_nodes: Iterable[Node] = (), *, function_keyword: str = "function"
    ) -> None:
        self._lines = data.split(b"\n")
        self._starts = list(accumulate([len(line) + 1 for line in self._lines], initial=0))
        self._leading_lines = _full_line_ranges(data, leading_nodes)
        self._function_keyword = function_keyword

    def split(self, spans: Sequence[DefinitionSpan]) -> tuple[CodeChunk, ...]:
        """Return the chunks of the file."""
        pieces = self._split_range(spans, 1, len(self._lines), "")
        trimmed = (piece for piece in map(self._trim, pieces) if piece)
        return tuple(
            CodeChunk(p.first, p.last, p.title[:MAX_TITLE_CHARS]) for p in self._join_small(trimmed)
        )

    def _split_range(
        self, spans: Sequence[DefinitionSpan], first: int, last: int, parent_title: str
    ) -> Iterator[_Piece]:
        at = first
        for span in spans:
            begin, end = max(at, self._start_with_leading(span.first, at)), min(span.last, last)
            if end < at:
                continue  # on a line that is already covered
            if begin > at:
                yield from self._split_loose_lines(at, begin - 1, parent_title)
            yield from self._split_definition(span, begin, end, parent_title)
            at = end + 1
        if at <= last:
            yield from self._split_loose_lines(at, last, parent_title)

    def _split_definition(
        self, span: DefinitionSpan, first: int, last: int, parent_title: str
    ) -> Iterator[_Piece]:
        title = self._build_title(span, parent_title)
        if self._fits(first, last, MAX_LINES):
            yield _Piece(first, last, title, parent_title, last - first < MAX_SMALL_LINES)
        elif span.children:
            yield from self._split_range(span.children, first, last, title)
        else:
            for begin, end in self._split_lines(first, last, MAX_LINES):
                yield _Piece(begin, end, title, title, is_small=False)

    def _split_loose_lines(self, first: int, last: int, parent_title: str) -> Iterator[_Piece]:
        for begin, end in self._split_lines(first, last, MAX_JOINED_LINES):
            yield _Piece(begin, end, parent_title, parent_title, is_small=True)

    def _build_title(self, span: DefinitionSpan, parent_title: str) -> str:
        name = ".".join([*span.owners, span.names[0].text])
        word = {
            "function": self._function_keyword,
            "method": self._function_keyword,
            "scope": "impl",
            "variable": "",
            "constant": "",
            "attribute": "",
        }.get(span.kind, span.kind)
        own = f"{word} {name}".strip()
        return f"{parent_title} > {own}" if parent_title else own

    def _start_with_leading(self, first: int, min_line: int) -> int:
        """Return the first line of a definition, including comments right above it."""
        while first - 1 in self._leading_lines and self._leading_lines[first - 1] >= min_line:
            first = self._leading_lines[first - 1]
        return first

    def _size(self, first: int, last: int) -> int:
        return self._starts[last] - self._starts[first - 1]

    def _fits(self, first: int, last: int, max_lines: int) -> bool:
        return last - first < max_lines and self._size(first, last) <= MAX_BYTES

    def _split_lines(self, first: int, last: int, max_lines: int) -> Iterator[tuple[int, int]]:
        """Split into ranges that fit; prefer a blank line in the second half of each."""
        while not self._fits(first, last, max_lines) and first < last:
            end = first
            while end < last and self._fits(first, end + 1, max_lines):
                end += 1
            half = (first + end) // 2
            blank = next((n for n in range(end, half, -1) if self._is_blank(n)), end)
            yield first, blank
            first = blank + 1
        yield first, last

    def _is_blank(self, line: int) -> bool:
        return not self._lines[line - 1].strip()

    def _trim(self, piece: _Piece) -> _Piece | None:
        while piece.first <= piece.last and self._is_blank(piece.first):
            piece.first += 1
        while piece.last >= piece.first and self._is_blank(piece.last):
            piece.last -= 1
        return piece if piece.first <= piece.last else None

    def _join_small(self, pieces: Iterable[_Piece]) -> Iterator[_Piece]:
        current: _Piece | None = None
        for piece in pieces:
            if current and self._can_join(current, piece):
                current.last, current.title = piece.last, current.parent_title
                continue
            if current:
                yield current
            current = piece
        if current:
            yield current

    def _can_join(self, previous: _Piece, piece: _Piece) -> bool:
        return (
            previous.is_small
            and piece.is_small
            and previous.parent_title == piece.parent_title
            and self._fits(previous.first, piece.last, MAX_JOINED_LINES)
        )


def _full_line_ranges(data: bytes, nodes: Iterable[Node]) -> dict[int, int]:
    """Map the last line of each full-line comment or decorator to its first line."""
    first_by_last: dict[int, int] = {}
    for node in nodes:
        row, column = node.start_point
        start = node.start_byte
        if column and data[start - column : start].strip():
            continue
        end, width = node.end_point
        first_by_last[end if width == 0 and end > row else end + 1] = row + 1
    return first_by_last
