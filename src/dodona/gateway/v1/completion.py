"""What an answer looks like on OpenAI's wire: whole, or piece by piece."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from time import time
from typing import Any, Final, TypeAlias

from dodona.core.domain.budgets import TokenRecord
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """One answer, by its id; `model` is the name that it was asked for under."""

    id: str
    model: str
    include_usage: bool = False  # at the end of a stream
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
        return self.encode_delta({"role": "assistant", "content": "", "refusal": None})

    def encode_delta(self, delta: Delta) -> bytes:
        return self._encode_chunk([self._choice(delta, None)])

    def encode_last(self, finish: str, usage: Mapping[str, Any]) -> bytes:
        """The finish, what was used if that is wanted, and the end."""
        ended = self._encode_chunk([self._choice({}, finish)])
        used = self._encode_chunk([], usage) if self.include_usage else b""
        return ended + used + DONE_EVENT

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
    """One event. JSON has no line breaks, so it is one line."""
    return b"data: %b\n\n" % encode_json(value)


def usage_from_records(records: Iterable[TokenRecord]) -> dict[str, Any]:
    """What all calls of a run were billed as."""
    found = list(records)
    return _usage_json(
        input_tokens=sum(each.input_tokens for each in found),
        output_tokens=sum(each.output_tokens for each in found),
        cached_tokens=sum(each.cache_read_tokens for each in found),
        reasoning_tokens=sum(each.reasoning_tokens for each in found),
    )


def usage_from_calls(usages: Iterable[Usage]) -> dict[str, Any]:
    """The same of calls that were made one after the other."""
    found = list(usages)
    return _usage_json(
        input_tokens=sum(each.input_tokens for each in found),
        output_tokens=sum(each.output_tokens for each in found),
        cached_tokens=sum(each.cache_read_tokens for each in found),
        reasoning_tokens=sum(each.reasoning_tokens for each in found),
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
