"""Line ranges of files: how a tool reads some lines, and which lines a model has not seen."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dodona.core.errors import ToolRetry
from dodona.core.ports.tools import ShownLines
from dodona.tools.presentation import integer

MAX_READ_LINES: Final = 2_000  # per read
MAX_READ_CHARS: Final = 90_000  # per read; a longer result of a tool is cut

LINE_RANGE: Final[dict[str, Any]] = {
    "first": integer("The first line to read.", default=1),
    "last": integer("The last line to read; default: the end."),
}


@dataclass(frozen=True, slots=True)
class LineRange:
    """Lines `first` to `last` of a file that has `count` lines."""

    first: int
    last: int
    text: str
    count: int


def select_lines(name: str, lines: Sequence[str], *, first: int, last: int | None) -> LineRange:
    """Return these lines, as far as one read may return them; at least one.

    Raises ToolRetry for a range that the file does not have.
    """
    count = len(lines)
    if not 1 <= first <= count:
        raise ToolRetry(f"'{name}' has lines 1 to {count}; there is no line {first}.")
    end = min(count if last is None else last, count, first + MAX_READ_LINES - 1)
    if end < first:
        raise ToolRetry(f"the last line ({last}) is before the first line ({first}).")
    size, at = 0, first
    while at <= end and (size := size + len(lines[at - 1]) + 1) <= MAX_READ_CHARS:
        at += 1
    end = max(first, at - 1)
    return LineRange(first, end, "\n".join(lines[first - 1 : end]), count)


def format_rest(kind: str, *, last: int, count: int) -> str:
    """Return how to read the lines after `last`."""
    return f"\n[The {kind} continues: it has {count:,} lines. Read on with first={last + 1}.]"


def find_unseen_lines(
    shown: Iterable[ShownLines], version: str, count: int
) -> list[tuple[int, int]]:
    """Return the ranges of a text with this version and this many lines that were not shown."""
    unseen: list[tuple[int, int]] = []
    line = 1  # the first one that may be unseen
    for first, last in sorted((each.first, each.last) for each in shown if each.version == version):
        if first > line:
            unseen.append((line, first - 1))
        line = max(line, last + 1)
    return unseen if line > count else [*unseen, (line, count)]
