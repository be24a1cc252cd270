"""Chat completions in OpenAI's format, complete or as a stream of chunks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from time import time
from typing import Annotated, Any, Final, Literal, TypeAlias

from msgspec import UNSET, Meta, UnsetType

from dodona.core.domain.budgets import TokenRecord
from dodona.core.json_document import Document
from dodona.core.messages import ToolCall
from dodona.core.ports.model import FinishReason, Usage
from dodona.gateway.http.responses import encode_json

DONE_EVENT: Final = b"data: [DONE]\n\n"

Delta: TypeAlias = dict[str, Any]

FINISH_REASONS: Final[Mapping[str, str]] = {
    FinishReason.STOP.value: "stop",
    FinishReason.LENGTH.value: "length",
    FinishReason.TOOL_CALLS.value: "tool_calls",
    FinishReason.REFUSAL.value: "content_filter",
    FinishReason.OTHER.value: "stop",
}


class V1Usage(Document, kw_only=True):
    """The tokens that a completion used."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: dict[str, Any]
    completion_tokens_details: dict[str, Any]


class V1Completion(Document, kw_only=True):
    """A chat completion."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[dict[str, Any]]
    usage: V1Usage


class V1Chunk(Document, kw_only=True):
    """A part of a streamed chat completion."""

    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    choices: Annotated[
        list[dict[str, Any]], Meta(description="Empty in the last chunk, which has the usage.")
    ]
    usage: V1Usage | UnsetType | None = UNSET


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """The metadata of one completion. `model` is the name that the client requested."""

    id: str
    model: str
    include_usage: bool = False  # whether the stream ends with a usage chunk
    created: int = field(default_factory=lambda: int(time()))

    def build_response(
        self,
        *,
        text: str,
        thinking: str,
        finish: str,
        usage: Mapping[str, Any],
        calls: Sequence[ToolCall] = (),
    ) -> dict[str, Any]:
        """Return the response for a request without `stream`."""
        message: dict[str, Any] = {
            "role": "assistant",
            "content": text or (None if calls else ""),
            "refusal": None,
        }
        if thinking:
            message["reasoning_content"] = thinking
        if calls:
            message["tool_calls"] = [_tool_call_json(call) for call in calls]
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
        return {**self._envelope("chat.completion"), "choices": [choice], "usage": dict(usage)}

    def encode_first(self) -> bytes:
        """Encode the first chunk, which has the role."""
        return self.encode_delta({"role": "assistant", "content": "", "refusal": None})

    def encode_delta(self, delta: Delta) -> bytes:
        """Encode a chunk with one delta."""
        return self._encode_chunk([self._choice(delta, None)])

    def encode_last(self, finish: str, usage: Mapping[str, Any]) -> bytes:
        """Encode the finish reason, the usage if requested, and [DONE]."""
        finish_chunk = self._encode_chunk([self._choice({}, finish)])
        usage_chunk = self._encode_chunk([], usage) if self.include_usage else b""
        return finish_chunk + usage_chunk + DONE_EVENT

    def _choice(self, delta: Delta, finish: str | None) -> dict[str, Any]:
        return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}

    def _encode_chunk(
        self, choices: Sequence[Mapping[str, Any]], usage: Mapping[str, Any] | None = None
    ) -> bytes:
        body = {**self._envelope("chat.completion.chunk"), "choices": choices}
        if self.include_usage:
            body["usage"] = usage
        return encode_event(body)

    def _envelope(self, kind: str) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": None,
        }


def encode_event(value: Mapping[str, Any]) -> bytes:
    """Encode one event. Encoded JSON has no line breaks, so it is one line."""
    return b"data: %b\n\n" % encode_json(value)


def usage_from_records(records: Iterable[TokenRecord]) -> dict[str, Any]:
    """Return the billed usage of all model calls of a run."""
    items = list(records)
    return _usage_json(
        input_tokens=sum(item.input_tokens for item in items),
        output_tokens=sum(item.output_tokens for item in items),
        cached_tokens=sum(item.cache_read_tokens for item in items),
        reasoning_tokens=sum(item.reasoning_tokens for item in items),
    )


def usage_from_calls(usages: Iterable[Usage]) -> dict[str, Any]:
    """Return the total usage of several model calls."""
    items = list(usages)
    return _usage_json(
        input_tokens=sum(item.input_tokens for item in items),
        output_tokens=sum(item.output_tokens for item in items),
        cached_tokens=sum(item.cache_read_tokens for item in items),
        reasoning_tokens=sum(item.reasoning_tokens for item in items),
    )


def _usage_json(
    *, input_tokens: int, output_tokens: int, cached_tokens: int, reasoning_tokens: int
) -> dict[str, Any]:
    return {
        "prompt_tokens": input_tokens,
        "completion_tokens": output_tokens,
        "total_tokens": input_tokens + output_tokens,
        "prompt_tokens_details": {"cached_tokens": cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": reasoning_tokens},
    }


def _tool_call_json(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}
