from __future__ import annotations

import pytest

from dodona.core.errors import ToolRetry
from dodona.core.ports.tools import ShownLines
from dodona.tools.line_ranges import (
    MAX_READ_CHARS,
    MAX_READ_LINES,
    find_unseen_lines,
    select_lines,
)


@pytest.mark.parametrize(
    ("lines", "first", "last", "expected"),
    [
        (["a", "b", "c"], 1, None, (1, 3)),
        (["a", "b", "c"], 2, 9, (2, 3)),
        (["x"] * (MAX_READ_LINES + 5), 3, None, (3, MAX_READ_LINES + 2)),
        (["x" * 999] * 200, 1, None, (1, MAX_READ_CHARS // 1000)),
        (["a", "x" * MAX_READ_CHARS, "b"], 1, None, (1, 1)),
        (["a", "x" * MAX_READ_CHARS, "b"], 2, None, (2, 2)),
    ],
)
def test_a_read_returns_at_least_one_line_and_at_most_the_limits(
    lines: list[str], first: int, last: int | None, expected: tuple[int, int]
) -> None:
    """The first and last line of the result are those of its text."""
    found = select_lines("a.md", lines, first=first, last=last)
    assert (found.first, found.last) == expected
    assert found.text == "\n".join(lines[found.first - 1 : found.last])
    assert found.count == len(lines)


@pytest.mark.parametrize(
    ("first", "last", "message"),
    [
        (0, None, "'a.md' has lines 1 to 2; there is no line 0."),
        (3, None, "'a.md' has lines 1 to 2; there is no line 3."),
        (2, 1, "the last line (1) is before the first line (2)."),
    ],
)
def test_a_range_that_does_not_exist(first: int, last: int | None, message: str) -> None:
    """The error names the lines that exist."""
    with pytest.raises(ToolRetry) as error:
        select_lines("a.md", ["a", "b"], first=first, last=last)
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("shown", "unseen"),
    [
        ([], [(1, 9)]),
        ([(1, 9)], []),
        ([(4, 9), (1, 3)], []),
        ([(1, 5), (3, 9)], []),
        ([(1, 9), (2, 3)], []),
        ([(2, 4), (7, 7)], [(1, 1), (5, 6), (8, 9)]),
    ],
)
def test_the_unseen_lines_are_those_between_the_shown_ranges(
    shown: list[tuple[int, int]], unseen: list[tuple[int, int]]
) -> None:
    """Ranges may overlap and come in any order; those of other versions do not count."""
    ranges = [ShownLines("now", *lines) for lines in shown]
    assert find_unseen_lines([*ranges, ShownLines("before", 1, 9)], "now", 9) == unseen
