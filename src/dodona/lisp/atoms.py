"""Atoms: symbols, keywords, numbers, true, false and nil."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from dodona.core.errors import ReadError
from dodona.lisp.forms import Form, Keyword, Literal, Symbol
from dodona.lisp.spans import Source, Span

_MAX_LENGTH = 40
_UNNAMED_CATEGORIES = {"Cc": "CONTROL CHARACTER", "Cs": "LONE SURROGATE"}
# Typographic quotes and dashes that word processors insert, with the plain character.
_LOOK_ALIKES = {
    **dict.fromkeys("“”„«»", '"'),
    **dict.fromkeys("‘’‚´", "'"),
    **dict.fromkeys("–—−", "-"),
}


def describe_character(character: str) -> str:
    """Return `'“' (U+201C LEFT DOUBLE QUOTATION MARK)`; only the name if it is unprintable."""
    unnamed = _UNNAMED_CATEGORIES.get(unicodedata.category(character), "WITHOUT A NAME")
    full = f"U+{ord(character):04X} {unicodedata.name(character, unnamed)}"
    return f"'{character}' ({full})" if character.isprintable() else full


def plain_character_hint(character: str) -> str:
    """Return a sentence that suggests the plain look-alike of a character, or an empty string."""
    plain = _LOOK_ALIKES.get(character) or unicodedata.normalize("NFKC", character)
    if plain == character or len(plain) > 1 or not plain.isascii():
        return ""
    return "Write a plain space instead." if plain == " " else f"Write a plain {plain} instead."


def abbreviate(text: str) -> str:
    """Return the text, cut to 40 characters with an ellipsis if it is longer."""
    return text if len(text) <= _MAX_LENGTH else f"{text[: _MAX_LENGTH - 1]}…"


MAX_DIGITS = 4_000

FormFactory: TypeAlias = Callable[[Span], Form]

_PUNCTUATION = "-+*/<>=!?."
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_\-+*/<>=!?.]++")
# Digits of any script: １２ and ١٢ are typing errors, not symbols.
_NUMBER_START = re.compile(r"[+-]?\.?\d")
_INTEGER = re.compile(r"[+-]?[0-9]++")
_FLOAT = re.compile(r"[+-]?[0-9]++(?:\.[0-9]++(?:[eE][+-]?[0-9]++)?|[eE][+-]?[0-9]++)")
_CONSTANTS: dict[str, bool | None] = {"true": True, "false": False, "nil": None}
_NAME_HINT = f"Names consist of letters, digits, _ and {' '.join(_PUNCTUATION)}"
_WITHOUT_PUNCTUATION = {ord(c): None for c in _PUNCTUATION}


def is_symbol(name: str) -> bool:
    """Return whether the reader parses this name as a symbol."""
    return _is_name(name) and name not in _CONSTANTS and not _NUMBER_START.match(name)


def is_keyword(name: str) -> bool:
    """Return whether the reader parses this name, after a colon, as a keyword."""
    return _is_name(name)


def atom_factory(token: str, source: Source, start: int) -> FormFactory:
    """Return a function that builds the token's form from a span; errors point to `start`."""
    if token in _CONSTANTS:
        return partial(Literal, _CONSTANTS[token])
    if _NUMBER_START.match(token):
        return partial(Literal, _parse_number(token, Span(source, start, start + len(token))))
    kind, name = (Keyword, token[1:]) if token[0] == ":" else (Symbol, token)
    if not _is_name(name):
        raise _name_error(name, Span(source, start + len(token) - len(name), start + len(token)))
    return partial(kind, name)


def _is_name(name: str) -> bool:
    if _PLAIN_NAME.fullmatch(name):
        return True
    return bool(name) and f"_{name.translate(_WITHOUT_PUNCTUATION)}".isidentifier()


def _name_error(name: str, span: Span) -> ReadError:
    if not name:
        colon = Span(span.source, span.start - 1, span.end)
        hint = "Write the name right after it, as in :timeout."
        return ReadError("this ':' has no name.", where=colon.location(), hint=hint)
    bad = {character for character in set(name) if not _is_name(character)}
    at = next(index for index, character in enumerate(name) if character in bad)
    where = Span(span.source, span.start + at, span.end).location()
    message = f"{describe_character(name[at])} cannot be part of a name."
    return ReadError(message, where=where, hint=plain_character_hint(name[at]) or _NAME_HINT)


def _parse_number(token: str, span: Span) -> int | float:
    if len(token) > MAX_DIGITS:
        raise ReadError(
            f"this number is {len(token):,} characters long.",
            where=span.location(),
            hint=f"The longest allowed is {MAX_DIGITS:,}.",
        )
    if _INTEGER.fullmatch(token):
        return int(token)
    if not _FLOAT.fullmatch(token):
        raise ReadError(
            f"'{abbreviate(token)}' is not a number.",
            where=span.location(),
            hint="Numbers look like 42, -7, 0.5 or 1e-3; a name cannot start with a digit.",
        )
    value = float(token)
    if math.isinf(value):
        raise ReadError(
            f"the number {abbreviate(token)} is too large for a float.",
            where=span.location(),
            hint="The largest is about 1.8e308.",
        )
    return value
