"""What the reader makes of a text. Equality and hash look at content, never at spans.

Nothing here recurses, so a form nested a thousand deep compares like any other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias, cast

from dodona.lisp.spans import Span


class _Compared:
    """Equality, hash and repr of every form."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Compared):
            return NotImplemented
        # Each part tells how many parts belong to it, so neither side can be the
        # beginning of the other: stopping at the shorter one is exact.
        return all(mine == theirs for mine, theirs in zip(_parts(self), _parts(other)))  # noqa: B905

    def __hash__(self) -> int:
        return hash(tuple(_parts(self)))

    def __repr__(self) -> str:
        kind, content = next(_parts(self))
        return f"<{kind.__name__} {content!r:.60} at {cast('Form', self).span}>"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Symbol(_Compared):
    """A name that stands for something: `sequence`, `has-tool-calls?`, `<=`."""

    name: str
    span: Span


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Keyword(_Compared):
    """A name that stands for itself: `:fn`. The colon is not part of the name."""

    name: str
    span: Span


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Literal(_Compared):
    """A string, a number, `true`, `false` or `nil`. `1`, `1.0` and `true` all differ."""

    value: str | int | float | bool | None
    span: Span


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class List(_Compared):
    """Forms in parentheses."""

    items: tuple[Form, ...]
    span: Span


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Vector(_Compared):
    """Forms in brackets."""

    items: tuple[Form, ...]
    span: Span


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Map(_Compared):
    """Keys and values in braces, in the order they were written, which equality minds."""

    pairs: tuple[tuple[Form, Form], ...]
    span: Span


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Quote(_Compared):
    """A form after `'`: meant as it stands."""

    form: Form
    span: Span


Form: TypeAlias = Symbol | Keyword | Literal | List | Vector | Map | Quote


def children(form: Form) -> Sequence[Form]:
    """The forms directly inside, in the order they were written."""
    if isinstance(form, List | Vector):
        return form.items
    if isinstance(form, Map):
        return [form for pair in form.pairs for form in pair]
    return (form.form,) if isinstance(form, Quote) else ()


def _parts(root: _Compared) -> Iterator[tuple[type, object]]:
    """Every form within, outermost first: its kind, and its content or how many it holds."""
    stack = [cast("Form", root)]
    while stack:
        form = stack.pop()
        if isinstance(form, Symbol | Keyword):
            yield type(form), form.name
        elif isinstance(form, Literal):
            yield type(form.value), form.value
        else:
            inner = children(form)
            yield type(form), len(inner)
            stack.extend(reversed(inner))
