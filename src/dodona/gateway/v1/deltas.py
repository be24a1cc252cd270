"""Deltas in OpenAI's format, from the chunks of a run or the events of a model.

chunk of a run                          delta
content                                 content
thinking                                reasoning_content
tool_call, tool_result                  none: the agent calls its own tools
source, system, context_update,
approval                                none: the text contains the citations
restart                                 none, unless sent text would have to be retracted
done                                    the finish reason
error                                   raised
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from uuid import uuid4

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from dodona.core import chunks
from dodona.core.chunks import StreamChunk, TerminationReason
from dodona.core.errors import from_body
from dodona.core.messages import ToolCall
from dodona.core.ports.model import CallDelta, Done, ModelEvent, Restart, TextDelta, ThinkingDelta
from dodona.gateway.http.openai_errors import AnswerRestarted
from dodona.gateway.v1.completion import (
    FINISH_REASONS,
    Finish,
    V1CallDelta,
    V1Delta,
    V1FunctionDelta,
)

# In Markdown, an image starts with `![`, and HTML with `<` and a letter.
_IMAGE = re.compile(r"!\[")
_TAG = re.compile(r"<(?=[a-zA-Z!?/])")


class ImageEscaper:
    """Escapes images and HTML in a text that arrives in pieces.

    Clients load images at once, and their URLs may carry private text out. Dodona's own clients
    find a mark at such answers, which clients of OpenAI's API do not know.
    """

    def __init__(self) -> None:
        self._pending = ""

    def feed(self, text: str) -> str:
        """Return the text that can be sent: all but a last character that may start an image."""
        text = self._pending + text
        self._pending = text[-1] if text.endswith(("!", "<")) else ""
        ready = text[: len(text) - len(self._pending)]
        # A backslash in front of it would be undone by another one: so `[` is replaced as well.
        return _TAG.sub("&lt;", _IMAGE.sub("!&#91;", ready))

    def close(self) -> str:
        """Return the rest of the text."""
        rest, self._pending = self._pending, ""
        return rest


class RunDeltas:
    """Applies the chunks of a run: `text` and `thinking` so far, why it ended after the end.

    A stream cannot retract sent text. When the model restarts its answer, text that it repeats is
    not sent again; different text is an error.
    """

    def __init__(self, *, is_streaming: bool) -> None:
        self.finish: Finish | None = None
        self.termination_reason: TerminationReason | UnsetType = UNSET
        self._is_streaming = is_streaming
        self._text_parts: list[tuple[int, str]] = []  # with the seq of each chunk
        self._thinking_parts: list[tuple[int, str]] = []
        self._sent_parts: list[str] = []
        self._is_restarted = False
        self._images, self._thinking_images = ImageEscaper(), ImageEscaper()

    @property
    def text(self) -> str:
        return "".join([text for _, text in self._text_parts])

    @property
    def thinking(self) -> str:
        return "".join([text for _, text in self._thinking_parts])

    def apply(self, chunk: StreamChunk) -> V1Delta | None:
        """Return the delta to send for a chunk, if any. Raises the error that ended the run."""
        match chunk.chunk:
            case chunks.ContentChunk(text, untrusted):
                return self._on_content(chunk.seq, self._images.feed(text) if untrusted else text)
            case chunks.ThinkingChunk(text, untrusted):
                text = self._thinking_images.feed(text) if untrusted else text
                self._thinking_parts.append((chunk.seq, text))
                return V1Delta(reasoning_content=text) if text else None
            case chunks.RestartChunk(discard_after=last):
                self._on_restart(last)
            case chunks.DoneChunk(finish=finish, termination_reason=reason):
                self.finish = FINISH_REASONS[finish]
                self.termination_reason = reason
                return self._flush(chunk.seq)
            case chunks.ErrorChunk(error):
                raise from_body(error)
            case _:
                pass
        return None

    def _flush(self, seq: int) -> V1Delta | None:
        """Return what the escapers have not passed on yet."""
        delta = self._on_content(seq, self._images.close())
        if thinking := self._thinking_images.close():
            self._thinking_parts.append((seq, thinking))
            delta = replace(delta or V1Delta(), reasoning_content=thinking)
        return delta

    def _on_content(self, seq: int, text: str) -> V1Delta | None:
        if not text:
            return None
        self._text_parts.append((seq, text))
        if self._is_streaming and self._is_restarted:
            text = self._unsent_text()
        else:
            self._sent_parts.append(text)
        return V1Delta(content=text) if text else None

    def _unsent_text(self) -> str:
        whole, sent = self.text, "".join(self._sent_parts)
        if whole.startswith(sent):
            self._sent_parts, self._is_restarted = [whole], False
            return whole[len(sent) :]
        if sent.startswith(whole):
            return ""
        raise AnswerRestarted(
            "the model restarted its answer.", hint="Retry, or request without stream."
        )

    def _on_restart(self, last: int) -> None:
        before = len(self._text_parts)
        self._images = ImageEscaper()
        self._text_parts = [each for each in self._text_parts if each[0] <= last]
        self._thinking_parts = [each for each in self._thinking_parts if each[0] <= last]
        self._is_restarted = self._is_restarted or len(self._text_parts) < before


class ModelDeltas:
    """Converts the events of a model whose tool calls the client executes."""

    def __init__(self) -> None:
        self._call_ids: dict[int, str] = {}  # by index, the ids that were sent
        # Arguments of calls whose name has not arrived yet.
        self._pending_arguments: dict[int, str] = {}

    def apply(self, event: ModelEvent) -> Iterator[V1Delta]:
        """Yield the deltas to send for an event."""
        match event:
            case TextDelta(text):
                yield V1Delta(content=text)
            case ThinkingDelta(text):
                yield V1Delta(reasoning_content=text)
            case CallDelta():
                yield from self._on_call(event)
            case Restart(reason):
                raise AnswerRestarted(
                    f"the model restarted its answer: {reason}", hint="Retry the request."
                )
            case Done():
                yield from self._unsent_calls(event.message.calls)

    def _on_call(self, delta: CallDelta) -> Iterator[V1Delta]:
        index = delta.index
        if index in self._call_ids:
            if delta.text:
                function = V1FunctionDelta(arguments=delta.text)
                yield V1Delta(tool_calls=[V1CallDelta(index=index, function=function)])
            return
        self._pending_arguments[index] = self._pending_arguments.get(index, "") + delta.text
        if delta.name:
            yield self._start_call(index, delta.id, delta.name)

    def _start_call(self, index: int, id_: str, name: str) -> V1Delta:
        is_new = bool(id_) and id_ not in self._call_ids.values()
        self._call_ids[index] = id_ if is_new else f"call_{uuid4().hex[:24]}"
        call = V1CallDelta(
            index=index,
            id=self._call_ids[index],
            type="function",
            function=V1FunctionDelta(name=name, arguments=self._pending_arguments.pop(index, "")),
        )
        return V1Delta(tool_calls=[call])

    def _unsent_calls(self, calls: tuple[ToolCall, ...]) -> Iterator[V1Delta]:
        """Yield the calls of which no delta arrived before the end."""
        for index, call in enumerate(calls):
            if index not in self._call_ids:
                self._pending_arguments[index] = call.arguments
                yield self._start_call(index, call.id, call.name)
