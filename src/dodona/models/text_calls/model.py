"""Turn calls that a model writes as text, in its content or thinking, into tool calls.

The text is scanned only if the request has tools, and only calls to these tools count. It stays
unchanged if the model has made a native call, in this answer or before in the run; if the provider
refused to answer; inside code (fenced or inline) and block quotes; if a call is incomplete, because
its arguments may be truncated; and if a tool returned the text of the call or of its arguments: the
model repeats a page or a note then.

A call in the thinking counts only if the content is empty: a model may consider a call without
making it. The text shown and stored omits the calls; if only whitespace is left, it is empty.
While a possible call is buffered, nothing is shown; if the stream breaks, the buffer is lost.

Not protected against: a model that rewords a call from an untrusted source makes that call. In the
syntaxes with plain-text values (`<parameter …>`), a `</parameter>` inside a value ends it; JSON
strings do not have this problem. Approvals and rules check these calls like any other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from itertools import count
from typing import Final, Self

from dodona.core.messages import AssistantText, ToolCall, ToolResult, UserText
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
from dodona.models.text_calls.copies import CopiedCalls
from dodona.models.text_calls.scanner import TextCallScanner

_ID_PREFIX: Final = "text_call_"


class TextCallModel:
    """Wraps a model and recognizes calls in its text."""

    def __init__(self, model: Model) -> None:
        self._model = model

    @property
    def provider(self) -> str:
        return self._model.provider

    @property
    def name(self) -> str:
        return self._model.name

    def stream(self, request: ModelRequest) -> AbstractAsyncContextManager[ModelStream]:
        """Stream the answer of the wrapped model; scan it if it may contain calls as text."""
        if request.tools and not _has_native_call(request):
            return self._scan_stream(request)
        return self._model.stream(request)

    @asynccontextmanager
    async def _scan_stream(self, request: ModelRequest) -> AsyncGenerator[ModelStream]:
        async with self._model.stream(request) as stream:
            yield _ScannedStream(stream, request)


class _ScannedStream:
    """Passes on the events of another stream and scans their text for calls."""

    def __init__(self, stream: ModelStream, request: ModelRequest) -> None:
        self._stream = stream
        self._request = request
        self._offered = OfferedTools(request.tools)
        self._copies = CopiedCalls(m.text for m in request.messages if isinstance(m, ToolResult))
        self._ready: deque[ModelEvent] = deque()
        self._reset()

    def _reset(self) -> None:
        self._content = TextCallScanner(self._offered, copies=self._copies, may_be_json=True)
        self._thinking = TextCallScanner(self._offered, copies=self._copies, may_be_json=False)
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
        # If there was content, the thinking scanner was abandoned and has no calls.
        thinking, thinking_calls = self._thinking.close()
        content, content_calls = self._content.close()
        self._show_thinking(thinking)
        self._show_content(content)
        calls = self._assign_ids(thinking_calls + content_calls)
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
        """Give the calls ids that are new to the conversation, as some providers require."""
        used_ids = {
            call.id
            for message in self._request.messages
            if isinstance(message, AssistantText)
            for call in message.calls
        }
        new_ids = (id_ for n in count(1) if (id_ := f"{_ID_PREFIX}{n}") not in used_ids)
        return tuple(ToolCall(next(new_ids), name, arguments) for name, arguments in calls)


def _has_native_call(request: ModelRequest) -> bool:
    """Whether the model has called a tool natively since the last question."""
    for message in reversed(request.messages):
        if isinstance(message, UserText):
            return False
        if isinstance(message, AssistantText) and any(
            not call.id.startswith(_ID_PREFIX) for call in message.calls
        ):
            return True
    return False


def _blank_to_empty(text: str) -> str:
    return text if text.strip() else ""
