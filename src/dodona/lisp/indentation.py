"""Guesses from the indentation where a delimiter is missing or superfluous."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from dodona.lisp.forms import Form, children
from dodona.lisp.spans import Source

_BLANKS = re.compile(r"^[ \t]*+", re.MULTILINE)

# An unclosed form: its start offset, and the forms read inside it.
Unclosed: TypeAlias = tuple[int, Sequence[Form]]


def find_misplaced(source: Source, nested: Sequence[Unclosed]) -> tuple[int, int] | None:
    """Return the offsets of the first form that seems misplaced and of the form around it.

    A form is misplaced if it starts a line and is not indented deeper than the line on which
    the form around it starts. A text without any indentation gives no result.
    """
    indents = _line_indents(source)
    if max(indents) == 0:
        return None
    for start, around in _walk_in_order(nested):
        line, column = source.position(start)
        if column - 1 == indents[line - 1] <= indents[source.position(around)[0] - 1]:
            return start, around
    return None


def find_indented_top_level(source: Source, forms: Sequence[Form]) -> int | None:
    """Return the line of the first top-level form that is indented as if it were nested."""
    indents = _line_indents(source) if len(forms) > 1 else []
    for form in forms[1:]:
        line, column = source.position(form.span.start)
        if column - 1 == indents[line - 1] > 0:
            return line
    return None


def _line_indents(source: Source) -> list[int]:
    """Return the number of leading blanks of each line."""
    return [len(blanks[0]) for blanks in _BLANKS.finditer(source.text)]


def _walk_in_order(nested: Sequence[Unclosed]) -> Iterator[tuple[int, int]]:
    """Yield the start of each nested form and of the form around it, in source order."""
    for index, (outer, items) in enumerate(nested):
        if index:
            yield outer, nested[index - 1][0]
        work = [(item, outer) for item in reversed(items)]
        while work:
            form, around = work.pop()
            yield form.span.start, around
            work.extend((inner, form.span.start) for inner in reversed(children(form)))
