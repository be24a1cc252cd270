"""Exchanges: what a run keeps of itself, and what a later one reads of it.

A run keeps one message of the user and one of the assistant. Turns with tools are in the
assistant's metadata, each with its calls and results, so that a later model sees what happened.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, cast

from dodona.agent.conversation.citations import Citation
from dodona.agent.conversation.provenance import Provenance
from dodona.core.domain.conversations.conversation import StoredMessage
from dodona.core.domain.notices import Notice
from dodona.core.messages import (
    AssistantText,
    Message,
    RawMessage,
    SystemText,
    ToolCall,
    ToolResult,
    UserText,
)
from dodona.core.ports.tools import SourceReference


@dataclass(frozen=True, slots=True)
class Turn:
    """One answer of a model, and what the tools it called returned, in the order of the calls."""

    answer: AssistantText
    results: tuple[ToolResult, ...] = ()
    durations: tuple[int | None, ...] = ()  # of the calls, in milliseconds

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
                    "duration_ms": duration,
                }
                for call, result, duration in zip_longest(
                    self.answer.calls, self.results, self.durations
                )
            ],
        }

    @classmethod
    def read(cls, record: Mapping[str, Any]) -> Turn:
        raw, calls = record.get("raw"), record.get("calls", ())
        return cls(
            answer=AssistantText(
                text=record.get("text", ""),
                calls=tuple(ToolCall(c["id"], c["name"], c["arguments"]) for c in calls),
                thinking=record.get("thinking", ""),
                raw=None if raw is None else RawMessage(raw["provider"], raw["body"].encode()),
            ),
            results=tuple(
                ToolResult(c["id"], c["name"], c["result"], failed=c["failed"]) for c in calls
            ),
            durations=tuple(c.get("duration_ms") for c in calls),
        )


def parse_arguments(arguments: str) -> dict[str, Any]:
    """The arguments of a call for people and programs; what is no object is shown in one."""
    try:
        parsed: object = json.loads(arguments)
    except (ValueError, RecursionError):
        parsed = None
    return cast("dict[str, Any]", parsed) if isinstance(parsed, dict) else {"malformed": arguments}


def to_model_messages(messages: Iterable[StoredMessage]) -> tuple[Message, ...]:
    """Kept messages as a model reads them; a call and its result stay together."""
    return tuple(said for message in messages for said in _expand(message))


def _expand(message: StoredMessage) -> Iterator[Message]:
    match message.role:
        case "user":
            yield UserText(message.content)
        case "assistant":
            kept = message.metadata or {}
            told = [(notice["turn"], notice["text"]) for notice in kept.get("notices", ())]
            yield from _interleave_notices(
                [Turn.read(turn) for turn in kept.get("turns", ())], told
            )
            yield AssistantText(message.content, raw=message.raw)
        case _:
            # Written by somebody else: whom it answers is not known here.
            yield SystemText(f"A tool returned: {message.content}")


def _interleave_notices(
    turns: Sequence[Turn], notices: Sequence[tuple[int, str]]
) -> Iterator[Message]:
    """The turns, and between them what the model was told there."""
    for place in range(len(turns) + 1):
        texts = [text for at, text in notices if at == place and text]
        if texts:
            yield SystemText("\n".join(texts))
        if place < len(turns):
            yield from turns[place].messages()


@dataclass(frozen=True, slots=True)
class Exchange:
    """What a run came to: its answer, the turns before it, and where it is from."""

    content: str
    raw: RawMessage | None
    turns: tuple[Turn, ...]
    sources: tuple[SourceReference, ...] = ()
    is_partial: bool = False
    citations: tuple[Citation, ...] = ()
    provenance: Provenance = field(default_factory=Provenance)
    notices: tuple[tuple[int, Notice], ...] = ()  # with how many turns came before each

    def messages(self) -> tuple[Message, ...]:
        """As a later model reads it, after the question."""
        told = [(place, notice.text) for place, notice in self.notices]
        return (*_interleave_notices(self.turns, told), AssistantText(self.content, raw=self.raw))

    def metadata(self, **more: Any) -> dict[str, Any]:
        """What an assistant's message keeps beside its text."""
        kept: dict[str, Any] = {
            "turns": [turn.as_json() for turn in self.turns],
            "sources": [source.as_json() for source in self.sources],
            "citations": [citation.as_json() for citation in self.citations],
            "notices": [{"turn": place, **notice.as_json()} for place, notice in self.notices],
            **self.provenance.as_json(),
            **more,
        }
        if self.is_partial:
            kept["partial"] = True
        return {name: value for name, value in kept.items() if value not in ([], None)}
