"""What an answer looks like on OpenAI's wire: whole, or piece by piece."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from time import time
from typing import Any, Final, TypeAlias

from dodona.core.domain.budgets import TokenRecord
from dodona.core.messages import ToolCall
from dodona.core.ports.model import FinishReason, Usage
from dodona.gateway.http.responses import encoded

END: Final = b"data: [DONE]\n\n"

Delta: TypeAlias = dict[str, Any]

FINISHES: Final[Mapping[str, str]] = {
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
    with_usage: bool = False  # at the end of a stream
    created: int = field(default_factory=lambda: int(time()))

    def whole(
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
            message["tool_calls"] = [_call(call) for call in calls]
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
        return {**self._head("chat.completion"), "choices": [choice], "usage": dict(usage)}

    def first(self) -> bytes:
        return self.piece({"role": "assistant", "content": "", "refusal": None})

    def piece(self, delta: Delta) -> bytes:
        return self._event([self._choice(delta, None)])

    def last(self, finish: str, usage: Mapping[str, Any]) -> bytes:
        """The finish, what was used if that is wanted, and the end."""
        ended = self._event([self._choice({}, finish)])
        used = self._event([], usage) if self.with_usage else b""
        return ended + used + END

    def _choice(self, delta: Delta, finish: str | None) -> dict[str, Any]:
        return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}

    def _event(
        self, choices: Sequence[Mapping[str, Any]], usage: Mapping[str, Any] | None = None
    ) -> bytes:
        body = {**self._head("chat.completion.chunk"), "choices": choices}
        if self.with_usage:
            body["usage"] = usage
        return data(body)

    def _head(self, kind: str) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": None,
        }


def data(value: Mapping[str, Any]) -> bytes:
    """One event. JSON has no line breaks, so it is one line."""
    return b"data: %b\n\n" % encoded(value)


def usage_of(records: Iterable[TokenRecord]) -> dict[str, Any]:
    """What all calls of a run were billed as."""
    found = list(records)
    return _usage(
        read=sum(each.input_tokens for each in found),
        written=sum(each.output_tokens for each in found),
        cached=sum(each.cache_read_tokens for each in found),
        reasoned=sum(each.reasoning_tokens for each in found),
    )


def usage_in(usages: Iterable[Usage]) -> dict[str, Any]:
    """The same of calls that were made one after the other."""
    found = list(usages)
    return _usage(
        read=sum(each.input_tokens for each in found),
        written=sum(each.output_tokens for each in found),
        cached=sum(each.cache_read_tokens for each in found),
        reasoned=sum(each.reasoning_tokens for each in found),
    )


def _usage(*, read: int, written: int, cached: int, reasoned: int) -> dict[str, Any]:
    return {
        "prompt_tokens": read,
        "completion_tokens": written,
        "total_tokens": read + written,
        "prompt_tokens_details": {"cached_tokens": cached},
        "completion_tokens_details": {"reasoning_tokens": reasoned},
    }


def _call(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}
