"""Converts a search query to FTS5 expressions. Queries have no operators except quotes."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Final

MAX_QUERY_CHARS: Final = 1_000
MAX_TERMS: Final = 24
MIN_PART_CHARS: Final = 3  # minimum length for prefix and substring search
MIN_STEM_CHARS: Final = 5

_PHRASE = re.compile(r'"([^"]{2,100})"|“([^”]{2,100})”|„([^“”]{2,100})[“”]|«([^»]{2,100})»')
_WORD = re.compile(r"\w+(?:[-.'’:/]\w+)*")


def terms_of(query: str) -> list[str]:
    """Return the distinct words and quoted phrases of a query."""
    text = query[:MAX_QUERY_CHARS]
    phrases = ["".join(match.groups(default="")) for match in _PHRASE.finditer(text)]
    words = _WORD.findall(_PHRASE.sub(" ", text))
    terms = [" ".join(_WORD.findall(phrase)) for phrase in phrases] + words
    by_key = {term.casefold(): term for term in terms if any(map(str.isalnum, term))}
    return list(by_key.values())[:MAX_TERMS]


def phrase_expression(term: str) -> str:
    """Return an expression for a word or phrase, including inflections."""
    return f'"{term}"'  # a term contains no quotes


def prefix_expression(term: str) -> str:
    """Return an expression for words with this prefix; "" if it is too short."""
    return (
        f"{phrase_expression(term)} *" if len(term) >= MIN_PART_CHARS or not term.isascii() else ""
    )


def stems(term: str) -> Iterator[str]:
    """Yield a word without its last letters: the tokenizer only stems English."""
    if term.isalpha():
        for end in range(len(term) - 1, max(len(term) - 4, MIN_STEM_CHARS - 1), -1):
            yield term[:end]


def substring_of(term: str) -> str:
    """Return the text to search for within indexed words; "" if it is too short.

    In scripts without spaces, two characters carry more meaning than three in others.
    """
    decomposed = unicodedata.normalize("NFD", term)
    folded = "".join(c for c in decomposed if not unicodedata.combining(c)).lower()
    is_word = folded.isalpha() and len(folded) >= (MIN_PART_CHARS if folded.isascii() else 2)
    return unicodedata.normalize("NFC", folded) if is_word else ""


def any_of(expressions: Sequence[str]) -> str:
    """Join expressions with OR."""
    return " OR ".join(expressions)


def all_of(expressions: Sequence[str]) -> str:
    """Join expressions with AND."""
    return " AND ".join(f"({expression})" for expression in expressions)


def in_names_and_labels(expression: str) -> str:
    """Restrict an expression to names and labels."""
    return f"{{names labels}} : ({expression})"
