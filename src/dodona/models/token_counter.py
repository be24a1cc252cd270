"""Counts tokens as a model would, offline.

Where a model's own vocabulary is public the count of a text is exact. Elsewhere another one stands
in and the count is multiplied by a factor, which starts at the catalogue's and is learned from what
providers report. The first count with a vocabulary loads it (30 to 300 ms): count something in a
thread at start if that would disturb.
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

# One run of a million letters takes seconds and hundreds of megabytes in one go, and milliseconds
# in pieces. A cut changes the count by a token or so: measured, at most 1 in 1,000.
PIECE_CHARS: Final = 16_384
# Longer texts are sampled: 64 pieces spread over the text, all of it taken to be as dense as the
# densest of them. So a count takes at most some 0.2 s, and errs upwards: no window holds such a
# text, but it must not slip through a reservation either.
MAX_PIECES: Final = 64
# splintr keeps 65,536 words of any length; it is made to forget before that could matter.
CACHE_CLEAR_CHARS: Final = 16 * 1024 * 1024

CACHE_SIZE: Final = 128
MAX_CACHED_CHARS: Final = 32_768

# Around the texts of a request: roles and separators of a message, the frame of a call, of a tool,
# and the instructions that providers add when tools are offered (Anthropic: 300 to 500).
TOKENS_PER_REQUEST: Final = 16
TOKENS_PER_MESSAGE: Final = 6
TOKENS_PER_CALL: Final = 16
TOKENS_PER_TOOL: Final = 16
TOOL_PREAMBLE_TOKENS: Final = 512

# A report moves a factor by a fifth of the way, and never past half or twice where it began. Small
# requests say more about frames than about texts.
LEARNING_RATE: Final = 0.2
MIN_LEARNING_TOKENS: Final = 500
MAX_LEARNED_MODELS: Final = 256


@dataclass(frozen=True, slots=True)
class TokenEstimate:
    """A request's size. `tokens` is what to expect; `counted` is before the factor, for `learn`."""

    tokens: int
    raw_tokens: int


class OfflineTokenCounter:
    """A `Counter` for every model of the catalogue; may be used from several threads."""

    def __init__(self) -> None:
        self._count_cached = lru_cache(maxsize=CACHE_SIZE)(_count_tokens)
        self._factors: dict[str, float] = {}
        self._lock = threading.Lock()

    def count(self, text: str, model: str) -> int:
        """The tokens of a text; at least 1 unless it is empty."""
        known = model_facts(model)
        return _scale(self._count_raw(text, known.vocabulary), self._factor(known))

    def count_messages(
        self, messages: Iterable[Message], tools: Sequence[ToolSpec], model: str
    ) -> TokenEstimate:
        """The size of a request, for a reservation: never less than its texts come to."""
        known = model_facts(model)
        factor = self._factor(known)
        counted = tokens = TOKENS_PER_REQUEST + (TOOL_PREAMBLE_TOKENS if tools else 0)
        for text, frame in [*_message_texts(messages), *_tool_texts(tools)]:
            raw = self._count_raw(text, known.vocabulary)
            counted += raw + frame
            tokens += _scale(raw, factor) + frame
        return TokenEstimate(tokens, counted)

    def learn(self, model: str, *, raw_tokens: int, reported_tokens: int) -> None:
        """Compare an estimate's `counted` with the input tokens that the provider reported.

        A model with a public vocabulary has nothing to learn.
        """
        known = model_facts(model)
        if known.has_own_vocabulary or raw_tokens < MIN_LEARNING_TOKENS or reported_tokens <= 0:
            return
        prior = known.token_factor
        seen = min(max(reported_tokens / raw_tokens, prior / 2), prior * 2)
        with self._lock:
            factor = self._factor(known)
            if known.name not in self._factors and len(self._factors) >= MAX_LEARNED_MODELS:
                del self._factors[next(iter(self._factors))]
            self._factors[known.name] = factor + LEARNING_RATE * (seen - factor)

    def _factor(self, model: ModelFacts) -> float:
        return self._factors.get(model.name, model.token_factor)

    def _count_raw(self, text: str, vocabulary: str) -> int:
        # The cache holds on to its texts, so long ones stay out.
        return (self._count_cached if len(text) <= MAX_CACHED_CHARS else _count_tokens)(
            vocabulary, text
        )


def _scale(raw: int, factor: float) -> int:
    return max(1, math.ceil(raw * factor)) if raw else 0


def _message_texts(messages: Iterable[Message]) -> Iterator[tuple[str, int]]:
    """Each text of the messages with the tokens of its frame."""
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
    """A vocabulary of splintr, which keeps what it has encoded."""

    def __init__(self, tokenizer: AnyTokenizer) -> None:
        self._tokenizer = tokenizer
        self._cached_chars = 0

    def count(self, text: str) -> int:
        # Ordinary: a text that spells out `<|im_start|>` is a text.
        try:
            tokens = len(self._tokenizer.encode_ordinary(text))
        except UnicodeEncodeError:  # half a surrogate pair, as JSON escapes can smuggle in
            mended = text.encode("utf-8", "replace").decode()
            tokens = len(self._tokenizer.encode_ordinary(mended))
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
