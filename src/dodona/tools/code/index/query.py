"""What somebody searches code for, as words of the index. Nothing in a query is syntax."""

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
PART_WEIGHT: Final = 0.4  # what a part of an identifier is worth, beside the whole of it
PAIR_WEIGHT: Final = 0.6  # what two words that stand together are worth as one identifier

_WORD = re.compile(r"\w+")
_STOP_WORD_TEXT: Final = """
a an and are as at be by can did do does for from has have how i in is it its my of on or our that
the their there these this to was we were what when where which who why will with you
code defined definition function implemented used
"""
_STOP_WORDS: Final = frozenset(_STOP_WORD_TEXT.split())


@dataclass(frozen=True, slots=True)
class Term:
    """A word to look for; `weight` is what it is worth beside others."""

    word: str
    weight: float = 1.0

    @property
    def exact_expression(self) -> str:
        return f'"{self.word}"'  # a word has no quotes in it

    def expressions(self) -> Iterator[str]:
        """Expressions for the word, then for words that begin so, then without its ending."""
        yield self.exact_expression
        yield f"{self.exact_expression} *"
        if self.word.isalpha():
            for end in range(len(self.word) - 1, max(len(self.word) - 4, MIN_STEM_LENGTH - 1), -1):
                yield f'"{self.word[:end]}" *'


def terms_of(query: str) -> list[Term]:
    """The words of a query and the parts of its identifiers, each once."""
    words = _remove_stop_words(_WORD.findall(query[:MAX_QUERY_CHARS]))
    found: dict[str, float] = {}
    for word in words:
        found[word.lower()] = 1.0
    for word in words:
        for part in parts_of(word):
            found.setdefault(part, PART_WEIGHT)
    return [Term(word, weight) for word, weight in found.items()]


def pairs_of(query: str) -> list[Term]:
    """Neighbours as one identifier: `token bucket` may be written token_bucket or TokenBucket."""
    words = [word.lower() for word in _remove_stop_words(_WORD.findall(query[:MAX_QUERY_CHARS]))]
    return [
        Term(joined, PAIR_WEIGHT)
        for first, second in pairwise(words)
        for joined in (f"{first}_{second}", f"{first}{second}")
    ]


def _remove_stop_words(words: list[str]) -> list[str]:
    """Without those that say nothing, unless there are no others."""
    short = [word for word in words if len(word.encode("utf-8", "replace")) <= MAX_WORD_BYTES]
    telling = [word for word in short if word.lower() not in _STOP_WORDS]
    return list(dict.fromkeys(telling or short))[:MAX_WORDS]
