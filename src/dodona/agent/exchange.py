"""Exchanges: what a run keeps of itself, and what a later one reads of it.

A run keeps one message of the user and one of the assistant. Turns with tools are in the
assistant's metadata, each with its calls and results, so that a later model sees what happened.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dodona.core.conversation import StoredMessage
from dodona.core.messages import (
    AssistantText,
    Message,
    Raw,
    SystemText,
    ToolCall,
    ToolResult,
    UserText,
)


@dataclass(frozen=True, slots=True)
class Turn:
    """One answer of a model, and what the tools it called returned, in the order of the calls."""

    answer: AssistantText
    results: tuple[ToolResult, ...] = ()

    def messages(self) -> Iterator[Message]:
        yield self.answer
        yield from self.results

    def as_json(self) -> dict[str, Any]:
        raw = self.answer.raw
        return {
            "text": self.answer.text,
            "thinking": self.answer.thinking,
            "raw": None if raw is None else {"provider": raw.provider, "body": raw.body.decode()},
            "calls": [
                {
                    "id": call.id,
                    "name": call.name,
                    "arguments": call.arguments,
                    "result": result.text,
                    "failed": result.failed,
                }
                for call, result in zip(self.answer.calls, self.results, strict=True)
            ],
        }

    @classmethod
    def read(cls, kept: Mapping[str, Any]) -> Turn:
        raw, calls = kept.get("raw"), kept.get("calls", ())
        return cls(
            answer=AssistantText(
                text=kept.get("text", ""),
                calls=tuple(ToolCall(c["id"], c["name"], c["arguments"]) for c in calls),
                thinking=kept.get("thinking", ""),
                raw=None if raw is None else Raw(raw["provider"], raw["body"].encode()),
            ),
            results=tuple(
                ToolResult(c["id"], c["name"], c["result"], failed=c["failed"]) for c in calls
            ),
        )


def history(messages: Iterable[StoredMessage]) -> tuple[Message, ...]:
    """Kept messages as a model reads them; a call and its result stay together."""
    return tuple(said for message in messages for said in _said(message))


def _said(message: StoredMessage) -> Iterator[Message]:
    match message.role:
        case "user":
            yield UserText(message.content)
        case "assistant":
            for turn in (message.metadata or {}).get("turns", ()):
                yield from Turn.read(turn).messages()
            yield AssistantText(message.content, raw=message.raw)
        case _:
            # Written by somebody else: whom it answers is not known here.
            yield SystemText(f"A tool returned: {message.content}")


def metadata(turns: Sequence[Turn], **more: Any) -> dict[str, Any]:
    """What an assistant's message keeps beside its text."""
    return {"turns": [turn.as_json() for turn in turns], **more}
