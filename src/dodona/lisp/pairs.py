"""Key-value pairs of a map."""

from __future__ import annotations

from collections.abc import Sequence

from dodona.core.errors import ReadError
from dodona.lisp.atoms import abbreviate
from dodona.lisp.forms import Form, Keyword, Literal
from dodona.lisp.strings import write_string


def pair_items(items: Sequence[Form]) -> tuple[tuple[Form, Form], ...]:
    """Pair keys with values. Raise ReadError for a missing value or a duplicate key."""
    if len(items) % 2:
        raise ReadError(
            "this last key of the map has no value.",
            where=items[-1].span.location(),
            hint="A map consists of key-value pairs.",
        )
    seen: dict[str, Form] = {}
    for key in items[::2]:
        text = _key_text(key)
        first = seen.setdefault(text, key)
        if first is not key:
            raise ReadError(
                f"the key {abbreviate(text)} is already in the map, at {first.span}.",
                where=key.span.location(),
                hint="Remove one of them.",
            )
    return tuple(zip(items[::2], items[1::2], strict=True))


def _key_text(key: Form) -> str:
    """Return the text that identifies a key.

    Text, not the value: an attacker could choose integers with equal hashes and make lookups
    quadratic. String hashes are randomised.
    """
    if isinstance(key, Keyword):
        return f":{key.name}"
    if isinstance(key, Literal) and isinstance(key.value, str):
        return write_string(key.value)
    if isinstance(key, Literal) and type(key.value) is int:
        return str(key.value)
    raise ReadError(
        "this cannot be a map key.",
        where=key.span.location(),
        hint="Keys are keywords, strings or whole numbers.",
    )
