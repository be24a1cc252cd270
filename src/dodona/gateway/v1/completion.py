"""Chat completions in OpenAI's format, complete or as a stream of chunks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from time import time
from typing import Annotated, Any, Final, Literal, TypeAlias

from msgspec import UNSET, Meta, UnsetType

from dodona.core.chunks import TerminationReason
from dodona.core.domain.budgets import TokenRecord
from dodona.core.json_document import JsonDocument
from dodona.core.messages import ToolCall
from dodona.core.ports.model import FinishReason, Usage
from dodona.gateway.http.responses import encode_json
from dodona.gateway.v1.messages import V1FunctionCall, V1ToolCall

DONE_EVENT: Final = b"data: [DONE]\n\n"

Finish: TypeAlias = Literal["stop", "length", "tool_calls", "content_filter"]

FINISH_REASONS: Final[Mapping[str, Finish]] = {
    FinishReason.STOP.value: "stop",
    FinishReason.LENGTH.value: "length",
    FinishReason.TOOL_CALLS.value: "tool_calls",
    FinishReason.REFUSAL.value: "content_filter",
    FinishReason.OTHER.value: "stop",
}


class V1InputDetails(JsonDocument):
    """Details of the input tokens."""

    cached_tokens: int


class V1OutputDetails(JsonDocument):
    """Details of the output tokens."""

    reasoning_tokens: int


class V1Usage(JsonDocument, kw_only=True):
    """The tokens that a completion used."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: V1InputDetails
    completion_tokens_details: V1OutputDetails

    @classmethod
    def total(cls, calls: Iterable[TokenRecord | Usage]) -> V1Usage:
        """Return the total usage of several model calls."""
        items = list(calls)
        input_tokens = sum(item.input_tokens for item in items)
        output_tokens = sum(item.output_tokens for item in items)
        return cls(
            prompt_tokens=input_tokens,
            completion_tokens=output_tokens,
            total_tokens=input_tokens + output_tokens,
            prompt_tokens_details=V1InputDetails(sum(item.cache_read_tokens for item in items)),
            completion_tokens_details=V1OutputDetails(sum(item.reasoning_tokens for item in items)),
        )


class V1Answer(JsonDocument, kw_only=True):
    """The message of a completion."""

    role: Literal["assistant"] = "assistant"
    content: str | None
    refusal: None = None
    reasoning_content: str | UnsetType = UNSET
    tool_calls: list[V1ToolCall] | UnsetType = UNSET


class V1Choice(JsonDocument, kw_only=True):
    """The only choice of a completion."""

    index: int = 0
    message: V1Answer
    logprobs: None = None
    finish_reason: Finish
    termination_reason: TerminationReason | UnsetType = UNSET


class V1Completion(JsonDocument, kw_only=True):
    """A chat completion."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    system_fingerprint: None = None
    choices: list[V1Choice]
    usage: V1Usage


class V1FunctionDelta(JsonDocument, kw_only=True):
    """A part of a function call."""

    name: str | UnsetType = UNSET
    arguments: str


class V1CallDelta(JsonDocument, kw_only=True):
    """A part of a tool call. The first part has the id and the name."""

    index: int
    id: str | UnsetType = UNSET
    type: Literal["function"] | UnsetType = UNSET
    function: V1FunctionDelta


class V1Delta(JsonDocument, kw_only=True):
    """The new part of a message."""

    role: Literal["assistant"] | UnsetType = UNSET
    content: str | UnsetType = UNSET
    refusal: UnsetType | None = UNSET
    reasoning_content: str | UnsetType = UNSET
    tool_calls: list[V1CallDelta] | UnsetType = UNSET


class V1ChunkChoice(JsonDocument, kw_only=True):
    """The only choice of a chunk."""

    index: int = 0
    delta: V1Delta
    logprobs: None = None
    finish_reason: Finish | None = None
    termination_reason: TerminationReason | UnsetType = UNSET


class V1Chunk(JsonDocument, kw_only=True):
    """A part of a streamed chat completion."""

    id: str
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    created: int
    model: str
    system_fingerprint: None = None
    choices: Annotated[
        list[V1ChunkChoice], Meta(description="Empty in the last chunk, which has the usage.")
    ]
    usage: V1Usage | UnsetType | None = UNSET


@dataclass(slots=True, kw_only=True)
class Completion:
    """Builds one completion, or its chunks. `model` is the name that the client requested."""

    id: str
    model: str
    include_usage: bool = False  # whether the stream ends with a usage chunk
    created: int = field(default_factory=lambda: int(time()))
    _has_started: bool = False  # whether the role was sent

    def build_response(
        self,
        *,
        text: str,
        thinking: str,
        finish: Finish,
        usage: V1Usage,
        calls: Sequence[ToolCall] = (),
        termination_reason: TerminationReason | UnsetType = UNSET,
    ) -> V1Completion:
        """Return the response for a request without `stream`."""
        answer = V1Answer(
            content=text or (None if calls else ""),
            reasoning_content=thinking or UNSET,
            tool_calls=[_tool_call(call) for call in calls] or UNSET,
        )
        return V1Completion(
            id=self.id,
            created=self.created,
            model=self.model,
            choices=[
                V1Choice(
                    message=answer, finish_reason=finish, termination_reason=termination_reason
                )
            ],
            usage=usage,
        )

    def encode_delta(self, delta: V1Delta) -> bytes:
        """Encode a chunk with one delta, the first time after a chunk with the role."""
        return self._encode_choice(V1ChunkChoice(delta=delta))

    def encode_last(
        self,
        finish: Finish,
        usage: V1Usage,
        *,
        termination_reason: TerminationReason | UnsetType = UNSET,
    ) -> bytes:
        """Encode the finish reason, the usage if requested, and [DONE]."""
        finish_chunk = self._encode_choice(
            V1ChunkChoice(
                delta=V1Delta(), finish_reason=finish, termination_reason=termination_reason
            )
        )
        usage_chunk = self._encode_chunk([], usage) if self.include_usage else b""
        return finish_chunk + usage_chunk + DONE_EVENT

    def _encode_choice(self, choice: V1ChunkChoice) -> bytes:
        if self._has_started:
            return self._encode_chunk([choice])
        self._has_started = True
        start = V1ChunkChoice(delta=V1Delta(role="assistant", content="", refusal=None))
        return self._encode_chunk([start]) + self._encode_chunk([choice])

    def _encode_chunk(self, choices: list[V1ChunkChoice], usage: V1Usage | None = None) -> bytes:
        chunk = V1Chunk(
            id=self.id,
            created=self.created,
            model=self.model,
            choices=choices,
            usage=usage if self.include_usage else UNSET,
        )
        return encode_event(chunk)


def encode_event(value: Any) -> bytes:
    """Encode one event. Encoded JSON has no line breaks, so it is one line."""
    return b"data: %b\n\n" % encode_json(value)


def _tool_call(call: ToolCall) -> V1ToolCall:
    return V1ToolCall(id=call.id, function=V1FunctionCall(call.name, call.arguments))
