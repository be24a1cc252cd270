"""Count tokens offline, for any model.

If the model's vocabulary is public, counts are exact. Otherwise another vocabulary is used and the
count is multiplied by a factor, which starts at the catalogue's value and is learned from the
usage that providers report. The first count with a vocabulary loads it (30 to 300 ms); to avoid
the delay, count something in a thread at startup.
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Final

from dodona.core.messages import AssistantText, Message, SystemText, ToolResult, ToolSpec, UserText
from dodona.models.catalogue.catalogue import ModelFacts, model_facts

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

# Overhead of a request: roles and separators of a message, the structure of a call and of a tool,
# and the instructions that providers add if there are tools (Anthropic: 300 to 500).
TOKENS_PER_REQUEST: Final = 16
TOKENS_PER_MESSAGE: Final = 6
TOKENS_PER_CALL: Final = 16
TOKENS_PER_TOOL: Final = 16
TOOL_PREAMBLE_TOKENS: Final = 512

# Each report moves the factor a fifth of the way, but never below half or above twice its initial
# value. Small requests are ignored, because they consist mostly of overhead.
LEARNING_RATE: Final = 0.2
MIN_LEARNING_TOKENS: Final = 500
MAX_LEARNED_MODELS: Final = 256


@dataclass(frozen=True, slots=True)
class TokenEstimate:
    """The size of a request. `raw_tokens` is the count before the factor, for `learn`."""

    tokens: int
    raw_tokens: int


class OfflineTokenCounter:
    """A `TokenCounter` for every model. Thread-safe."""

    def __init__(self) -> None:
        self._count_cached = lru_cache(maxsize=CACHE_SIZE)(_count_tokens)
        self._factors: dict[str, float] = {}
        self._lock = threading.Lock()

    def count(self, text: str, model: str) -> int:
        """Return the tokens of a text; at least 1 unless it is empty."""
        facts = model_facts(model)
        return _scale(self._count_raw(text, facts.vocabulary), self._factor(facts))

    def count_messages(
        self, messages: Iterable[Message], tools: Sequence[ToolSpec], model: str
    ) -> TokenEstimate:
        """Estimate the size of a request for a reservation; never less than its texts."""
        facts = model_facts(model)
        factor = self._factor(facts)
        raw_tokens = tokens = TOKENS_PER_REQUEST + (TOOL_PREAMBLE_TOKENS if tools else 0)
        for text, overhead in [*_message_texts(messages), *_tool_texts(tools)]:
            raw = self._count_raw(text, facts.vocabulary)
            raw_tokens += raw + overhead
            tokens += _scale(raw, factor) + overhead
        return TokenEstimate(tokens, raw_tokens)

    def learn(self, model: str, *, raw_tokens: int, reported_tokens: int) -> None:
        """Adjust the factor of a model by the input tokens that its provider reported.

        Has no effect for a model with a public vocabulary.
        """
        facts = model_facts(model)
        if facts.has_own_vocabulary or raw_tokens < MIN_LEARNING_TOKENS or reported_tokens <= 0:
            return
        initial = facts.token_factor
        observed = min(max(reported_tokens / raw_tokens, initial / 2), initial * 2)
        with self._lock:
            factor = self._factor(facts)
            if facts.name not in self._factors and len(self._factors) >= MAX_LEARNED_MODELS:
                del self._factors[next(iter(self._factors))]
            self._factors[facts.name] = factor + LEARNING_RATE * (observed - factor)

    def _factor(self, model: ModelFacts) -> float:
        return self._factors.get(model.name, model.token_factor)

    def _count_raw(self, text: str, vocabulary: str) -> int:
        # The cache keeps its texts in memory, so long ones are not cached.
        return (self._count_cached if len(text) <= MAX_CACHED_CHARS else _count_tokens)(
            vocabulary, text
        )


def _scale(raw: int, factor: float) -> int:
    return max(1, math.ceil(raw * factor)) if raw else 0


def _message_texts(messages: Iterable[Message]) -> Iterator[tuple[str, int]]:
    """Yield each text of the messages with its overhead in tokens."""
    for message in messages:
        match message:
            case SystemText() | UserText():
                yield message.text, TOKENS_PER_MESSAGE
            case ToolResult():
                yield message.text, TOKENS_PER_MESSAGE + TOKENS_PER_CALL
            case AssistantText():
                yield message.text, TOKENS_PER_MESSAGE
                yield message.thinking, 0
                for call in message.calls:
                    yield call.name, TOKENS_PER_CALL
                    yield call.arguments, 0


def _tool_texts(tools: Iterable[ToolSpec]) -> Iterator[tuple[str, int]]:
    for tool in tools:
        yield tool.name, TOKENS_PER_TOOL
        yield tool.description, 0
        yield json.dumps(tool.parameters, ensure_ascii=False, default=str), 0


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
