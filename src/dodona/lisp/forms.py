"""Forms: the reader's output. Equality and hash compare content, never spans.

Nothing here recurses, so forms nested a thousand levels deep can be compared and hashed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias, cast

from dodona.lisp.spans import Span


class _BaseForm:
    """Equality, hash and repr shared by all forms."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _BaseForm):
            return NotImplemented
        # Each part states how many parts it contains, so neither side can be a prefix of
        # the other: stopping at the shorter one is exact.
        return all(mine == theirs for mine, theirs in zip(_flatten(self), _flatten(other)))  # noqa: B905

    def __hash__(self) -> int:
        return hash(tuple(_flatten(self)))

    def __repr__(self) -> str:
        kind, content = next(_flatten(self))
        return f"<{kind.__name__} {content!r:.60} at {cast('Form', self).span}>"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Symbol(_BaseForm):
    """A name that refers to something: `sequence`, `has-tool-calls?`, `<=`."""

    name: str
    span: Span


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Keyword(_BaseForm):
    """A name that evaluates to itself: `:fn`. The colon is not part of the name."""

    name: str
    span: Span


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Literal(_BaseForm):
    """A string, a number, `true`, `false` or `nil`. `1`, `1.0` and `true` all differ."""

    value: str | int | float | bool | None
    span: Span


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class List(_BaseForm):
    """Forms in parentheses."""

    items: tuple[Form, ...]
    span: Span


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Vector(_BaseForm):
    """Forms in brackets."""

    items: tuple[Form, ...]
    span: Span


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Map(_BaseForm):
    """Keys and values in braces, in source order. Equality depends on the order."""

    pairs: tuple[tuple[Form, Form], ...]
    span: Span


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Quote(_BaseForm):
    """A form after `'`: taken literally, not evaluated."""

    form: Form
    span: Span


Form: TypeAlias = Symbol | Keyword | Literal | List | Vector | Map | Quote


def children(form: Form) -> Sequence[Form]:
    """Return the forms directly inside, in source order."""
    if isinstance(form, List | Vector):
        return form.items
    if isinstance(form, Map):
        return [form for pair in form.pairs for form in pair]
    return (form.form,) if isinstance(form, Quote) else ()


def _flatten(root: _BaseForm) -> Iterator[tuple[type, object]]:
    """Yield each form within, outermost first: its type, and its content or number of children."""
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
