"""Parses a code search query into index terms. Queries have no operators."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from dodona.tools.code.index.tokenize import MAX_WORD_BYTES, parts_of

MAX_QUERY_CHARS: Final = 1_000
MAX_WORDS: Final = 16
MIN_STEM_LENGTH: Final = 4
PART_WEIGHT: Final = 0.4  # part of an identifier, relative to the whole
PAIR_WEIGHT: Final = 0.6  # two neighbouring words as one identifier

_WORD = re.compile(r"\w+")
_STOP_WORD_TEXT: Final = """
a an and are as at be by can did do does for from has have how i in is it its my of on or our that
the their there these this to was we were what when where which who why will with you
code defined definition function implemented used
"""
_STOP_WORDS: Final = frozenset(_STOP_WORD_TEXT.split())


@dataclass(frozen=True, slots=True)
class Term:
    """A word to search for; `weight` is relative to other terms."""

    word: str
    weight: float = 1.0

    @property
    def exact_expression(self) -> str:
        return f'"{self.word}"'  # a word contains no quotes

    def expressions(self) -> Iterator[str]:
        """Yield FTS5 expressions: the word, then as a prefix, then with its ending removed."""
        yield self.exact_expression
        yield f"{self.exact_expression} *"
        if self.word.isalpha():
            for end in range(len(self.word) - 1, max(len(self.word) - 4, MIN_STEM_LENGTH - 1), -1):
                yield f'"{self.word[:end]}" *'


def terms_of(query: str) -> list[Term]:
    """Return the words of a query and the parts of its identifiers, without duplicates."""
    words = _remove_stop_words(_WORD.findall(query[:MAX_QUERY_CHARS]))
    weights: dict[str, float] = {}
    for word in words:
        weights[word.lower()] = 1.0
    for word in words:
        for part in parts_of(word):
            weights.setdefault(part, PART_WEIGHT)
    return [Term(word, weight) for word, weight in weights.items()]


def pairs_of(query: str) -> list[Term]:
    """Join neighbouring words: `token bucket` may be written token_bucket or TokenBucket."""
    words = [word.lower() for word in _remove_stop_words(_WORD.findall(query[:MAX_QUERY_CHARS]))]
    return [
        Term(joined, PAIR_WEIGHT)
        for first, second in pairwise(words)
        for joined in (f"{first}_{second}", f"{first}{second}")
    ]


def _remove_stop_words(words: list[str]) -> list[str]:
    """Remove stop words, unless there are no other words."""
    short = [word for word in words if len(word.encode("utf-8", "replace")) <= MAX_WORD_BYTES]
    significant = [word for word in short if word.lower() not in _STOP_WORDS]
    return list(dict.fromkeys(significant or short))[:MAX_WORDS]
