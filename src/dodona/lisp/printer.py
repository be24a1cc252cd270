"""Prints forms as text that reads back as the same forms. Nothing here recurses."""

from __future__ import annotations

import math
from bisect import bisect_right
from itertools import accumulate, takewhile
from typing import TypeAlias

from dodona.lisp.atoms import is_keyword, is_symbol
from dodona.lisp.forms import Form, Keyword, List, Literal, Map, Quote, Symbol, Vector, children
from dodona.lisp.strings import write_string

_Compound: TypeAlias = List | Vector | Map | Quote
# Pending output: literal text, or a form with its start column and the number of closing
# delimiters that follow it on its last line.
_Work: TypeAlias = str | tuple[Form, int, int]
# Forms that share a line if they fit: one form, or a key and its value.
_Row: TypeAlias = tuple[Form, ...]


def to_text(form: Form) -> str:
    """Print the form on one line. Raise ValueError for a form that cannot be read back."""
    output: list[str] = []
    work: list[str | Form] = [form]
    while work:
        part = work.pop()
        if isinstance(part, str):
            output.append(part)
        elif isinstance(part, Symbol | Keyword | Literal):
            output.append(_atom_text(part))
        else:
            opener, closer = _delimiters(part)
            output.append(opener)
            work.append(closer)
            for inner in reversed(children(part)):
                work += (inner, " ")
            if children(part):
                work.pop()
    return "".join(output)


def pretty(form: Form, width: int = 80) -> str:
    """Print the form on one line if it fits, otherwise with conventional Lisp indentation."""
    layout = _Layout(form, width)
    output: list[str] = []
    work: list[_Work] = [(form, 0, 0)]
    while work:
        part = work.pop()
        if isinstance(part, str):
            output.append(part)
            continue
        inner, column, after = part
        if isinstance(inner, Symbol | Keyword | Literal) or layout.fits(inner, column, after):
            output.append(to_text(inner))
        else:
            work.extend(reversed(layout.break_lines(inner, column, after)))
    return "".join(output)


class _Layout:
    """Decides where the lines of one form break."""

    def __init__(self, form: Form, width: int) -> None:
        self._width = width
        self._lengths = _measure_forms(form)

    def fits(self, form: Form, column: int, trailing_closers: int) -> bool:
        """Return whether the form fits on the line; a form without parts always does."""
        return not children(form) or column + self._length(form) + trailing_closers <= self._width

    def break_lines(self, form: _Compound, column: int, trailing_closers: int) -> list[_Work]:
        """Break the form into several lines; `trailing_closers` delimiters follow it."""
        if isinstance(form, Quote):
            return ["'", (form.form, column + 1, trailing_closers)]
        opener, closer = _delimiters(form)
        work: list[_Work] = [opener]
        rows, indent = _split_rows(form), column + 1
        if isinstance(form, List) and isinstance(rows[0][0], Symbol):
            head_rows = self._rows_on_head_line(rows, column)
            work.append(" ".join(to_text(item) for row in rows[:head_rows] for item in row))
            rows, indent = rows[head_rows:], column + 2
        for index, row in enumerate(rows):
            if index or len(work) > 1:
                work.append(_line_break(indent))
            work += self._lay_out_row(
                row, indent, trailing_closers + 1 if index == len(rows) - 1 else 0
            )
        return [*work, closer]

    def _rows_on_head_line(self, rows: list[_Row], column: int) -> int:
        """Return how many rows stay on the line of the symbol that starts a list.

        These are the names and literals that follow it, and the keywords that follow those if
        all of them fit and only parts without a keyword are left for the lines below.
        """
        flat = list(takewhile(_is_flat, rows))
        bare = 1 + sum(1 for _ in takewhile(_has_no_keyword, flat[1:]))
        columns = list(accumulate((self._row_length(row) + 1 for row in flat), initial=column))
        if len(flat) < len(rows) and all(map(_has_no_keyword, rows[len(flat) :])):
            bare = len(flat) if columns[-1] <= self._width else bare
        return max(1, bisect_right(columns, self._width, hi=bare + 1) - 1)

    def _row_length(self, row: _Row) -> int:
        return sum(map(self._length, row)) + len(row) - 1

    def _lay_out_row(self, row: _Row, column: int, trailing_closers: int) -> list[_Work]:
        if len(row) == 1:
            return [(row[0], column, trailing_closers)]
        key, value = row
        value_column = column + self._length(key) + 1
        if self.fits(value, value_column, trailing_closers) or not isinstance(value, List):
            return [to_text(key), " ", (value, value_column, trailing_closers)]
        return [to_text(key), _line_break(column + 2), (value, column + 2, trailing_closers)]

    def _length(self, form: Form) -> int:
        return self._lengths[id(form)]


def _line_break(indent: int) -> str:
    return "\n" + " " * indent


def _split_rows(form: List | Vector | Map) -> list[_Row]:
    """Return a map's pairs, a vector's items, or a list's items with keywords and values paired."""
    if isinstance(form, Map):
        return list(form.pairs)
    if isinstance(form, Vector):
        return [(item,) for item in form.items]
    rows: list[_Row] = []
    position = 0
    while position < len(form.items):
        size = 2 if _takes_value(form.items[position : position + 3]) else 1
        rows.append(form.items[position : position + size])
        position += size
    return rows


def _takes_value(items: tuple[Form, ...]) -> bool:
    """Guess whether the first item is a keyword and the second one its value.

    In `:a :b 1` the value of `:b` is 1, so `:a` must be a flag.
    """
    if len(items) < 2 or not isinstance(items[0], Keyword):
        return False
    return not isinstance(items[1], Keyword) or isinstance(items[-1], Keyword | List)


def _is_flat(row: _Row) -> bool:
    return not any(children(form) for form in row)


def _has_no_keyword(row: _Row) -> bool:
    return not isinstance(row[0], Keyword)


def _measure_forms(root: Form) -> dict[int, int]:
    """Return the one-line length of each form within, by the form's id."""
    order: list[Form] = [root]
    for form in order:
        order.extend(children(form))
    lengths: dict[int, int] = {}
    for form in reversed(order):
        if isinstance(form, Symbol | Keyword | Literal):
            lengths[id(form)] = len(_atom_text(form))
        else:
            inner = children(form)
            spaces = max(len(inner) - 1, 0)
            delimiter_length = sum(map(len, _delimiters(form)))
            lengths[id(form)] = (
                delimiter_length + spaces + sum(lengths[id(child)] for child in inner)
            )
    return lengths


def _delimiters(form: _Compound) -> tuple[str, str]:
    if isinstance(form, List):
        return "(", ")"
    if isinstance(form, Vector):
        return "[", "]"
    return ("{", "}") if isinstance(form, Map) else ("'", "")


def _atom_text(form: Symbol | Keyword | Literal) -> str:
    if isinstance(form, Literal):
        return _literal_text(form)
    is_valid = is_symbol(form.name) if isinstance(form, Symbol) else is_keyword(form.name)
    if not is_valid:
        raise ValueError(f"cannot be written as text: {form!r}")
    return form.name if isinstance(form, Symbol) else f":{form.name}"


def _literal_text(form: Literal) -> str:
    value = form.value
    if isinstance(value, str):
        return write_string(value)
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"cannot be written as text: {form!r}")
    if value is None or isinstance(value, bool):
        return {None: "nil", True: "true", False: "false"}[value]
    return repr(value)
