"""Answers that are counted as they come: not every provider gives an account, or stops in time.

A text has no more tokens than bytes, so most answers are never counted: only one that could have
passed the limit of its request is, in few and large pieces, and one whose provider says nothing of
what it used, at its end.

An answer that goes on behind its limit is closed, and ends as any that met it. Without a model's
own vocabulary a count may be a quarter too high, so that much more is let through.
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

MISCOUNT_DIVISOR: Final = 4  # a count may be too high by one in so many
MIN_COUNT_BYTES: Final = 512  # bytes that are worth a count
CLOSED_FINISH: Final = "closed"  # the finish of an answer that we ended

_log = logging.getLogger(__name__)


class CountedModel:
    """A model, and a count of what it says."""

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
        tally = _TokenTally(partial(self._counter.count, model=self.name), request.max_tokens)
        async with self._model.stream(request) as stream:
            yield _CountedStream(stream, tally, self._model)


class _TokenTally:
    """How many tokens came so far; `most` are allowed."""

    def __init__(self, count: Callable[[str], int], max_tokens: int | None) -> None:
        self._count = count
        self._limit = None if max_tokens is None else max_tokens + max_tokens // MISCOUNT_DIVISOR
        self._pieces: list[str] = []
        self._uncounted_bytes = 0  # at most, of what is not counted yet
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
    """The events of another stream, counted as they pass."""

    def __init__(self, stream: ModelStream, tally: _TokenTally, model: Model) -> None:
        self._stream = stream
        self._tally = tally
        self._model = model
        self._texts: list[str] = []
        self._thoughts: list[str] = []
        self._seen_calls: set[int] = set()
        self._usage: Usage | None = None  # once it is over

    @property
    def usage(self) -> Usage:
        """What the provider has told, or more if more has come."""
        if self._usage is not None:
            return self._usage
        told, counted = self._stream.usage, self._tally.total()
        if not counted:
            return told
        is_known = bool(told.input_tokens) and told.output_tokens >= counted
        most = max(told.output_tokens, counted)
        return replace(told, output_tokens=most, estimated=not is_known)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ModelEvent:
        if self._usage is not None:
            raise StopAsyncIteration
        event = await anext(self._stream)
        if isinstance(event, Done):
            self._usage = self._complete_usage(event.usage)
            return replace(event, usage=self._usage)
        self._tally.add(self._event_text(event))
        if self._tally.is_over_limit:
            return self._close_answer()
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
        """As the provider says; what it leaves out is counted."""
        if reported.input_tokens and reported.output_tokens:
            return reported
        counted = self._tally.total()
        if reported.input_tokens and not counted:
            return reported
        return replace(reported, output_tokens=reported.output_tokens or counted, estimated=True)

    def _close_answer(self) -> Done:
        """The end of an answer that does not end. A call that it was making is not whole."""
        model = self._model
        usage = self.usage
        self._usage = usage
        _log.warning(
            "%s/%s went on behind the limit of its answer, which was closed after %d tokens",
            *(model.provider, model.name, usage.output_tokens),
        )
        return Done(
            finish=FinishReason.LENGTH,
            message=AssistantText("".join(self._texts), thinking="".join(self._thoughts)),
            usage=usage,
            provider=model.provider,
            model=model.name,
            wire_finish=CLOSED_FINISH,
        )
