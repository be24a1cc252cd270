"""Count the tokens of streamed answers: some providers report no usage, or exceed max_tokens.

A text never has more tokens than bytes, so most answers need no count. Only two kinds are counted:
an answer that may have exceeded its limit, in a few large pieces, and at its end an answer whose
provider reports no usage.

An answer that does not stop is closed, and finishes with `length`; all text that was received is
kept. Only the provider's count is exact: ours is up to twice as high for a model whose vocabulary
is not available, for Chinese text above all. So an answer is closed at twice its limit, unless it
has just ended by itself.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Final, Self

from dodona.core.messages import AssistantText
from dodona.core.ports.model import (
    CallDelta,
    Done,
    FinishReason,
    Model,
    ModelEvent,
    ModelRequest,
    ModelStream,
    TextDelta,
    ThinkingDelta,
    TokenCounter,
    Usage,
)

MISCOUNT_FACTOR: Final = 2  # a count may be too high by this
MIN_COUNT_BYTES: Final = 512  # fewer bytes are not worth a count

_log = logging.getLogger(__name__)


class CountedModel:
    """Wraps a model, counts its output and enforces `max_tokens`."""

    def __init__(self, model: Model, counter: TokenCounter) -> None:
        self._model = model
        self._counter = counter

    @property
    def provider(self) -> str:
        return self._model.provider

    @property
    def name(self) -> str:
        return self._model.name

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelStream]:
        """Stream the answer of the wrapped model, counted."""
        tally = _TokenTally(partial(self._counter.count, model=self.name), request.max_tokens)
        async with self._model.stream(request) as stream:
            yield _CountedStream(stream, tally, self._model)


class _TokenTally:
    """Counts the tokens received so far, against the limit of the request."""

    def __init__(self, count: Callable[[str], int], max_tokens: int | None) -> None:
        self._count = count
        self._limit = None if max_tokens is None else max_tokens * MISCOUNT_FACTOR
        self._pieces: list[str] = []
        self._uncounted_bytes = 0  # upper bound
        self._counted = 0

    def add(self, text: str) -> None:
        self._pieces.append(text)
        self._uncounted_bytes += len(text) if text.isascii() else 4 * len(text)

    @property
    def is_over_limit(self) -> bool:
        if self._limit is None or self._uncounted_bytes <= max(
            MIN_COUNT_BYTES, self._limit - self._counted
        ):
            return False
        return self.total() > self._limit

    def total(self) -> int:
        if self._pieces:
            self._counted += self._count("".join(self._pieces))
            self._pieces.clear()
            self._uncounted_bytes = 0
        return self._counted


class _CountedStream:
    """Passes on the events of another stream and counts them."""

    def __init__(self, stream: ModelStream, tally: _TokenTally, model: Model) -> None:
        self._stream = stream
        self._tally = tally
        self._model = model
        self._texts: list[str] = []
        self._thoughts: list[str] = []
        self._seen_calls: set[int] = set()
        self._is_over_limit = False
        self._must_close = False  # it went on after it was over the limit
        self._usage: Usage | None = None  # set when the stream has ended

    @property
    def usage(self) -> Usage:
        """The usage that the provider reported, or the count if that is higher."""
        if self._usage is not None:
            return self._usage
        reported, counted = self._stream.usage, self._tally.total()
        if not counted:
            return reported
        is_complete = bool(reported.input_tokens) and reported.output_tokens >= counted
        output_tokens = max(reported.output_tokens, counted)
        return replace(reported, output_tokens=output_tokens, estimated=not is_complete)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ModelEvent:
        if self._usage is not None:
            raise StopAsyncIteration
        if self._must_close:
            return self._close_answer()
        event = await anext(self._stream)
        if isinstance(event, Done):
            self._usage = self._complete_usage(event.usage)
            return replace(event, usage=self._usage)
        self._tally.add(self._event_text(event))
        # One more event: it may be the end of an answer that was received as a whole.
        self._must_close, self._is_over_limit = self._is_over_limit, self._tally.is_over_limit
        if isinstance(event, TextDelta):
            self._texts.append(event.text)
        elif isinstance(event, ThinkingDelta):
            self._thoughts.append(event.text)
        return event

    def _event_text(self, event: ModelEvent) -> str:
        match event:
            case TextDelta(text) | ThinkingDelta(text):
                return text
            case CallDelta(index, name, text) if index not in self._seen_calls:
                self._seen_calls.add(index)
                return name + text
            case CallDelta(_, _, text):
                return text
            case _:
                return ""

    def _complete_usage(self, reported: Usage) -> Usage:
        """Fill in the figures that the provider did not report."""
        if reported.input_tokens and reported.output_tokens:
            return reported
        counted = self._tally.total()
        if reported.input_tokens and not counted:
            return reported
        return replace(reported, output_tokens=reported.output_tokens or counted, estimated=True)

    def _close_answer(self) -> Done:
        """Build the end of an answer that exceeds its limit. Unfinished calls are dropped."""
        model = self._model
        usage = self.usage
        self._usage = usage
        _log.warning(
            "%s/%s exceeded max_tokens; the answer was closed after %d tokens",
            *(model.provider, model.name, usage.output_tokens),
        )
        return Done(
            finish=FinishReason.LENGTH,
            message=AssistantText("".join(self._texts), thinking="".join(self._thoughts)),
            usage=usage,
            provider=model.provider,
            model=model.name,
        )
