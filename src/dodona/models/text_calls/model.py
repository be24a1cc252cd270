"""Calls that a model writes as text, in its content or its thinking, become calls.

They are looked for only when tools were offered, and only calls of those tools count. A native
call in the answer wins: then the text stands as it was written. So it does in code (fences,
inline), in an answer that the provider refused, and where a call is not finished: its arguments
may be cut.

What a model thinks is not yet what it does: a call in its thinking counts only when it then says
nothing. The text that is shown and kept is without the calls; when only blanks are left it is
empty. While a call is held back nothing is shown; when the stream breaks, what was held is lost.

Not defended: only what the model itself writes is read, never results or the user's words, but a
model that repeats a stranger's call outside of code has made it its own. In the forms whose values
are bare text (`<parameter …>`) a repeated `</parameter>` ends the value, whoever wrote it; JSON
strings cannot be left that way. Grants and rules must judge these calls like any other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from itertools import count
from typing import Self

from dodona.core.messages import AssistantText, ToolCall
from dodona.core.ports.model import (
    CallDelta,
    Done,
    FinishReason,
    Model,
    ModelEvent,
    ModelRequest,
    ModelStream,
    Restart,
    TextDelta,
    ThinkingDelta,
    Usage,
)
from dodona.models.text_calls.arguments import OfferedTools, ParsedCall
from dodona.models.text_calls.scanner import TextCallScanner


class TextCallModel:
    """A model, and the calls in its text."""

    def __init__(self, model: Model) -> None:
        self._model = model

    @property
    def provider(self) -> str:
        return self._model.provider

    @property
    def name(self) -> str:
        return self._model.name

    def stream(self, request: ModelRequest) -> AbstractAsyncContextManager[ModelStream]:
        return self._scan_stream(request) if request.tools else self._model.stream(request)

    @asynccontextmanager
    async def _scan_stream(self, request: ModelRequest) -> AsyncGenerator[ModelStream]:
        async with self._model.stream(request) as stream:
            yield _ScannedStream(stream, request)


class _ScannedStream:
    """The events of another stream, read as they pass."""

    def __init__(self, stream: ModelStream, request: ModelRequest) -> None:
        self._stream = stream
        self._request = request
        self._offered = OfferedTools(request.tools)
        self._ready: deque[ModelEvent] = deque()
        self._reset()

    def _reset(self) -> None:
        self._content = TextCallScanner(self._offered, may_be_json=True)
        self._thinking = TextCallScanner(self._offered, may_be_json=False)
        self._has_content = False

    @property
    def usage(self) -> Usage:
        return self._stream.usage

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ModelEvent:
        while not self._ready:
            self._read(await anext(self._stream))
        return self._ready.popleft()

    def _read(self, event: ModelEvent) -> None:
        match event:
            case TextDelta(text):
                if not self._has_content and text.strip():
                    self._has_content = True
                    self._show_thinking(self._thinking.abandon())
                self._show_content(self._content.feed(text))
            case ThinkingDelta(text):
                self._show_thinking(self._thinking.feed(text))
            case CallDelta():
                self._abandon()
                self._ready.append(event)
            case Restart():
                self._reset()
                self._ready.append(event)
            case Done():
                self._ready.append(self._finish(event))

    def _show_content(self, text: str) -> None:
        if text:
            self._ready.append(TextDelta(text))

    def _show_thinking(self, text: str) -> None:
        if text:
            self._ready.append(ThinkingDelta(text))

    def _abandon(self) -> None:
        self._show_thinking(self._thinking.abandon())
        self._show_content(self._content.abandon())

    def _finish(self, done: Done) -> Done:
        if done.message.calls or done.finish is FinishReason.REFUSAL:
            self._abandon()
            return done
        # Thinking before which content came was given up then, and has no calls left.
        thinking, thought = self._thinking.close()
        content, said = self._content.close()
        self._show_thinking(thinking)
        self._show_content(content)
        calls = self._assign_ids(thought + said)
        if not calls:
            return done
        for index, call in enumerate(calls):
            self._ready.append(CallDelta(index, call.name, call.arguments, call.id))
        message = AssistantText(
            text=_blank_to_empty(self._content.text),
            calls=calls,
            thinking=_blank_to_empty(self._thinking.text),
        )
        return replace(done, finish=FinishReason.TOOL_CALLS, message=message)

    def _assign_ids(self, calls: list[ParsedCall]) -> tuple[ToolCall, ...]:
        """The calls with ids that the conversation does not have yet: some providers insist."""
        taken = {
            call.id
            for message in self._request.messages
            if isinstance(message, AssistantText)
            for call in message.calls
        }
        free = (name for n in count(1) if (name := f"text_call_{n}") not in taken)
        return tuple(ToolCall(next(free), name, arguments) for name, arguments in calls)


def _blank_to_empty(text: str) -> str:
    return text if text.strip() else ""
