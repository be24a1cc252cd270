"""Cut a file into chunks at its definitions: each non-blank line is in one of them.

What is small is joined with what is next to it, what is large is cut. A comment or a decorator
goes with the definition below it. A line is never cut, however long it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from tree_sitter import Node

from dodona.tools.code.parsing.extracted import Chunk
from dodona.tools.code.parsing.spans import Span

MOST_LINES: Final = 80
MOST_BYTES: Final = 4_000
JOINED_LINES: Final = 40
SMALL_LINES: Final = 5  # a definition that may be joined with its neighbours
LONGEST_TITLE: Final = 200


@dataclass(slots=True)
class _Piece:
    first: int
    last: int
    title: str
    within: str  # the title of what it is in
    is_small: bool


class Chunks:
    """The chunks of one file, from its lines and definitions."""

    def __init__(self, data: bytes, above: Iterable[Node] = (), *, word: str = "function") -> None:
        self._lines = data.split(b"\n")
        self._starts = list(accumulate([len(line) + 1 for line in self._lines], initial=0))
        self._above = _standing_alone(data, above)
        self._word = word

    def of(self, spans: Sequence[Span]) -> tuple[Chunk, ...]:
        pieces = self._pieces(spans, 1, len(self._lines), "")
        trimmed = (piece for piece in map(self._trimmed, pieces) if piece)
        return tuple(Chunk(p.first, p.last, p.title[:LONGEST_TITLE]) for p in self._joined(trimmed))

    def _pieces(
        self, spans: Sequence[Span], first: int, last: int, within: str
    ) -> Iterator[_Piece]:
        at = first
        for span in spans:
            begin, end = max(at, self._with_above(span.first, at)), min(span.last, last)
            if end < at:
                continue  # on a line that is taken already
            if begin > at:
                yield from self._loose(at, begin - 1, within)
            yield from self._definition(span, begin, end, within)
            at = end + 1
        if at <= last:
            yield from self._loose(at, last, within)

    def _definition(self, span: Span, first: int, last: int, within: str) -> Iterator[_Piece]:
        title = self._title(span, within)
        if self._fits(first, last, MOST_LINES):
            yield _Piece(first, last, title, within, last - first < SMALL_LINES)
        elif span.inner:
            yield from self._pieces(span.inner, first, last, title)
        else:
            for begin, end in self._cut(first, last, MOST_LINES):
                yield _Piece(begin, end, title, title, is_small=False)

    def _loose(self, first: int, last: int, within: str) -> Iterator[_Piece]:
        for begin, end in self._cut(first, last, JOINED_LINES):
            yield _Piece(begin, end, within, within, is_small=True)

    def _title(self, span: Span, within: str) -> str:
        name = ".".join([*span.owners, span.names[0].text])
        word = {
            "function": self._word,
            "method": self._word,
            "scope": "impl",
            "variable": "",
            "constant": "",
            "attribute": "",
        }.get(span.kind, span.kind)
        own = f"{word} {name}".strip()
        return f"{within} > {own}" if within else own

    def _with_above(self, first: int, at: int) -> int:
        """The first line of a definition and of the comments that stand right above it."""
        while first - 1 in self._above and self._above[first - 1] >= at:
            first = self._above[first - 1]
        return first

    def _size(self, first: int, last: int) -> int:
        return self._starts[last] - self._starts[first - 1]

    def _fits(self, first: int, last: int, most: int) -> bool:
        return last - first < most and self._size(first, last) <= MOST_BYTES

    def _cut(self, first: int, last: int, most: int) -> Iterator[tuple[int, int]]:
        """Parts that fit; a cut is at a blank line if there is one in the second half."""
        while not self._fits(first, last, most) and first < last:
            end = first
            while end < last and self._fits(first, end + 1, most):
                end += 1
            half = (first + end) // 2
            blank = next((n for n in range(end, half, -1) if self._is_blank(n)), end)
            yield first, blank
            first = blank + 1
        yield first, last

    def _is_blank(self, line: int) -> bool:
        return not self._lines[line - 1].strip()

    def _trimmed(self, piece: _Piece) -> _Piece | None:
        while piece.first <= piece.last and self._is_blank(piece.first):
            piece.first += 1
        while piece.last >= piece.first and self._is_blank(piece.last):
            piece.last -= 1
        return piece if piece.first <= piece.last else None

    def _joined(self, pieces: Iterable[_Piece]) -> Iterator[_Piece]:
        held: _Piece | None = None
        for piece in pieces:
            if held and self._join(held, piece):
                held.last, held.title = piece.last, held.within
                continue
            if held:
                yield held
            held = piece
        if held:
            yield held

    def _join(self, held: _Piece, piece: _Piece) -> bool:
        return (
            held.is_small
            and piece.is_small
            and held.within == piece.within
            and self._fits(held.first, piece.last, JOINED_LINES)
        )


def _standing_alone(data: bytes, nodes: Iterable[Node]) -> dict[int, int]:
    """The first line of each comment and decorator that has its lines to itself, by its last."""
    found: dict[int, int] = {}
    for node in nodes:
        row, column = node.start_point
        start = node.start_byte
        if column and data[start - column : start].strip():
            continue
        end, width = node.end_point
        found[end if width == 0 and end > row else end + 1] = row + 1
    return found
