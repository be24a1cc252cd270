"""Count tokens offline, for any model.

If the model's vocabulary is public, counts are exact. Otherwise another vocabulary is used and the
count is multiplied by the factor of the catalogue. The first count with a vocabulary loads it (30
to 300 ms); to avoid the delay, count something in a thread at startup.
"""

from __future__ import annotations

import math
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Final

from dodona.models.catalogue.catalogue import model_facts

if TYPE_CHECKING:
    from splintr import AnyTokenizer

# Tokenizing a million letters in one go takes seconds and hundreds of megabytes; in pieces it takes
# milliseconds. Splitting changes the count by at most 0.1 % (measured).
PIECE_CHARS: Final = 16_384
# Longer texts are sampled: 64 pieces spread over the text, and the densest of them is taken for all
# of it. So a count takes at most about 0.2 s, and errs on the high side: such a text fits no
# context window, and its reservation must not be too small.
MAX_PIECES: Final = 64
# splintr caches 65,536 words of any length; the cache is cleared before it uses much memory.
CACHE_CLEAR_CHARS: Final = 16 * 1024 * 1024

CACHE_SIZE: Final = 128
MAX_CACHED_CHARS: Final = 32_768


class OfflineTokenCounter:
    """A `TokenCounter` for every model. Thread-safe."""

    def __init__(self) -> None:
        self._count_cached = lru_cache(maxsize=CACHE_SIZE)(_count_tokens)

    def count(self, text: str, model: str) -> int:
        """Return the tokens of a text; at least 1 unless it is empty."""
        facts = model_facts(model)
        # The cache keeps its texts in memory, so long ones are not cached.
        count = self._count_cached if len(text) <= MAX_CACHED_CHARS else _count_tokens
        tokens = count(facts.vocabulary, text)
        return max(1, math.ceil(tokens * facts.token_factor)) if tokens else 0


class _Vocabulary:
    """A splintr tokenizer, whose cache is cleared now and then."""

    def __init__(self, tokenizer: AnyTokenizer) -> None:
        self._tokenizer = tokenizer
        self._cached_chars = 0

    def count(self, text: str) -> int:
        """Return the tokens of a text."""
        # `encode_ordinary` treats special tokens such as `<|im_start|>` as plain text.
        try:
            tokens = len(self._tokenizer.encode_ordinary(text))
        except UnicodeEncodeError:  # a lone surrogate, from a JSON escape
            valid_text = text.encode("utf-8", "replace").decode()
            tokens = len(self._tokenizer.encode_ordinary(valid_text))
        self._cached_chars += len(text)
        if self._cached_chars > CACHE_CLEAR_CHARS and self._tokenizer.family == "BPE":
            self._tokenizer.clear_cache()
            self._cached_chars = 0
        return tokens


@cache
def _load_vocabulary(name: str) -> _Vocabulary:
    from splintr import Tokenizer  # noqa: PLC0415

    return _Vocabulary(Tokenizer.from_pretrained(name))


def _count_tokens(vocabulary: str, text: str) -> int:
    if not text:
        return 0
    count = _load_vocabulary(vocabulary).count
    starts = range(0, len(text), PIECE_CHARS)
    if len(starts) <= MAX_PIECES:
        return sum(count(text[start : start + PIECE_CHARS]) for start in starts)
    last = len(text) - PIECE_CHARS
    sample = [index * last // (MAX_PIECES - 1) for index in range(MAX_PIECES)]
    densest = max(count(text[start : start + PIECE_CHARS]) for start in sample)
    return math.ceil(densest * len(text) / PIECE_CHARS)
