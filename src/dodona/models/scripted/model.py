"""A model that plays back scripted answers, for tests without a network.

    model = ScriptedModel(["The oak.", AssistantText(calls=(ToolCall("1", "search"),)), error])

Answers are used in the order in which streams are opened. Each is streamed word by word: thinking,
then text, then calls. Requests are recorded in `requests`; their options (tools, max_tokens, …)
have no effect. A token is a word: `input_tokens` counts the words of the messages, `output_tokens`
those streamed, `reasoning_tokens` those of the thinking among them.

Not to be confused with the scripted leaves of `dodona.trees`, which replace functions of a tree.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Self, TypeAlias

from dodona.core.errors import ProviderError, ProviderErrorKind
from dodona.core.messages import AssistantText, Message
from dodona.core.ports.model import (
    CallDelta,
    Done,
    FinishReason,
    ModelEvent,
    ModelRequest,
    ModelStream,
    TextDelta,
    ThinkingDelta,
    Usage,
)
from dodona.models.scripted.answers import BrokenAnswer, ScriptedAnswer, read_answers

PROVIDER_NAME = "scripted"
_WORD = re.compile(r"\s*\S+\s*|\s+")

Script: TypeAlias = Iterable[ScriptedAnswer | Callable[[ModelRequest], ScriptedAnswer]]


class ScriptedModel:
    """Returns these answers, one per request. A callable computes its answer from the request."""

    def __init__(self, answers: Script, *, name: str = PROVIDER_NAME) -> None:
        self._answers = tuple(answers)
        self._name = name
        self.requests: list[ModelRequest] = []

    @classmethod
    def from_file(cls, path: Path) -> Self:
        """Load the answers of a TOML or JSON file; its file name becomes the model name."""
        return cls(read_answers(path), name=path.name)

    @property
    def provider(self) -> str:
        return PROVIDER_NAME

    @property
    def name(self) -> str:
        return self._name

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelStream]:
        """Stream the next answer of the script."""
        yield _ScriptedStream(self._next_answer(request), request, name=self._name)

    def _next_answer(self, request: ModelRequest) -> ScriptedAnswer:
        self.requests.append(request)
        request_count, answer_count = len(self.requests), len(self._answers)
        if request_count > answer_count:
            # REJECTED: neither a retry nor a fallback should hide an error in the script.
            return ProviderError(
                f"the script has {answer_count} answers, and this is request {request_count}.",
                kind=ProviderErrorKind.REJECTED,
                provider=PROVIDER_NAME,
                hint="Add an answer to the script.",
            )
        answer = self._answers[request_count - 1]
        return answer(request) if callable(answer) else answer


class _ScriptedStream:
    """The stream of one scripted answer."""

    def __init__(self, answer: ScriptedAnswer, request: ModelRequest, *, name: str) -> None:
        self._events = self._stream_events(answer, name)
        self._usage = Usage(input_tokens=sum(map(_count_message_words, request.messages)))

    @property
    def usage(self) -> Usage:
        return self._usage

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ModelEvent:
        await asyncio.sleep(0)  # as a network read: other tasks run, and cancellation arrives
        for event in self._events:
            return event
        raise StopAsyncIteration

    def _stream_events(self, answer: ScriptedAnswer, name: str) -> Iterator[ModelEvent]:
        if isinstance(answer, Exception):
            raise answer
        message = answer.partial if isinstance(answer, BrokenAnswer) else answer
        if isinstance(message, str):
            message = AssistantText(message)
        for delta in _deltas(message):
            self._count(delta)
            yield delta
        if isinstance(answer, BrokenAnswer):
            raise answer.error
        finish = FinishReason.TOOL_CALLS if message.calls else FinishReason.STOP
        yield Done(finish, message, self._usage, PROVIDER_NAME, name)

    def _count(self, delta: TextDelta | ThinkingDelta | CallDelta) -> None:
        words = _count_words(delta.text)
        thinking = words if isinstance(delta, ThinkingDelta) else 0
        self._usage = replace(
            self._usage,
            output_tokens=self._usage.output_tokens + words,
            reasoning_tokens=self._usage.reasoning_tokens + thinking,
        )


def _deltas(message: AssistantText) -> Iterator[TextDelta | ThinkingDelta | CallDelta]:
    for word in _WORD.findall(message.thinking):
        yield ThinkingDelta(word)
    for word in _WORD.findall(message.text):
        yield TextDelta(word)
    for index, call in enumerate(message.calls):
        for word in _WORD.findall(call.arguments) or ("",):
            yield CallDelta(index, call.name, word, call.id)


def _count_message_words(message: Message) -> int:
    if isinstance(message, AssistantText):
        return _count_words(message.text) + sum(
            _count_words(call.arguments) for call in message.calls
        )
    return _count_words(message.text)


def _count_words(text: str) -> int:
    return len(text.split())
