"""What somebody searches for, as FTS5 understands it. Nothing in a query is syntax."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Final

MAX_QUERY_CHARS: Final = 1_000
MAX_TERMS: Final = 24
MIN_PART_CHARS: Final = 3  # characters that a part of a word must have to be looked for
MIN_STEM_CHARS: Final = 5

_PHRASE = re.compile(r'"([^"]{2,100})"|“([^”]{2,100})”|„([^“”]{2,100})[“”]|«([^»]{2,100})»')
_WORD = re.compile(r"\w+(?:[-.'’:/]\w+)*")


def terms_of(query: str) -> list[str]:
    """The words of a query, and what is in quotes as one; each once."""
    text = query[:MAX_QUERY_CHARS]
    phrases = ["".join(found.groups(default="")) for found in _PHRASE.finditer(text)]
    words = _WORD.findall(_PHRASE.sub(" ", text))
    terms = [" ".join(_WORD.findall(phrase)) for phrase in phrases] + words
    known = {term.casefold(): term for term in terms if any(map(str.isalnum, term))}
    return list(known.values())[:MAX_TERMS]


def phrase_expression(term: str) -> str:
    """An expression for a word or phrase, in its inflections."""
    return f'"{term}"'  # a term has no quotes in it


def prefix_expression(term: str) -> str:
    """An expression for words that begin so; empty if too many would."""
    return (
        f"{phrase_expression(term)} *" if len(term) >= MIN_PART_CHARS or not term.isascii() else ""
    )


def stems(term: str) -> Iterator[str]:
    """A word without its last letters: English is not the only language that inflects."""
    if term.isalpha():
        for end in range(len(term) - 1, max(len(term) - 4, MIN_STEM_CHARS - 1), -1):
            yield term[:end]


def substring_of(term: str) -> str:
    """What to look for within words as the index has them; empty if it is too short.

    Scripts without spaces say more in two characters than others in three.
    """
    apart = unicodedata.normalize("NFD", term)
    folded = "".join(c for c in apart if not unicodedata.combining(c)).lower()
    is_word = folded.isalpha() and len(folded) >= (MIN_PART_CHARS if folded.isascii() else 2)
    return unicodedata.normalize("NFC", folded) if is_word else ""


def any_of(expressions: Sequence[str]) -> str:
    return " OR ".join(expressions)


def all_of(expressions: Sequence[str]) -> str:
    return " AND ".join(f"({expression})" for expression in expressions)


def in_names_and_labels(expression: str) -> str:
    """An expression for what is in names and labels."""
    return f"{{names labels}} : ({expression})"
