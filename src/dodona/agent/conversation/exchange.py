"""Exchanges: a question and its answer as they are stored, and as a later run reads them.

A run stores one user message and one assistant message. Turns with tool calls and their results
are in the metadata of the assistant message, so that later model calls see them.
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
    """One response of a model, and the results of its tool calls, in call order."""

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
    """Parse the arguments of a tool call; invalid JSON is returned as {"malformed": text}."""
    try:
        parsed: object = json.loads(arguments)
    except (ValueError, RecursionError):
        parsed = None
    return cast("dict[str, Any]", parsed) if isinstance(parsed, dict) else {"malformed": arguments}


def to_model_messages(messages: Iterable[StoredMessage]) -> tuple[Message, ...]:
    """Convert stored messages to model messages; a tool call and its result stay together."""
    return tuple(expanded for message in messages for expanded in _expand(message))


def _expand(message: StoredMessage) -> Iterator[Message]:
    match message.role:
        case "user":
            yield UserText(message.content)
        case "assistant":
            metadata = message.metadata or {}
            notices = [(notice["turn"], notice["text"]) for notice in metadata.get("notices", ())]
            yield from _interleave_notices(
                [Turn.read(turn) for turn in metadata.get("turns", ())], notices
            )
            yield AssistantText(message.content, raw=message.raw)
        case _:
            # Not written by Dodona, so the call that it answers is unknown.
            yield SystemText(f"A tool returned: {message.content}")


def _interleave_notices(
    turns: Sequence[Turn], notices: Sequence[tuple[int, str]]
) -> Iterator[Message]:
    """The messages of the turns, with the notices between them."""
    for index in range(len(turns) + 1):
        texts = [text for turn, text in notices if turn == index and text]
        if texts:
            yield SystemText("\n".join(texts))
        if index < len(turns):
            yield from turns[index].messages()


@dataclass(frozen=True, slots=True)
class Exchange:
    """The answer of a run, the turns before it, and its sources."""

    content: str
    raw: RawMessage | None
    turns: tuple[Turn, ...]
    sources: tuple[SourceReference, ...] = ()
    is_partial: bool = False
    citations: tuple[Citation, ...] = ()
    provenance: Provenance = field(default_factory=Provenance)
    notices: tuple[tuple[int, Notice], ...] = ()  # each with the number of turns before it

    def messages(self) -> tuple[Message, ...]:
        """Model messages of the exchange, as they follow the question."""
        texts = [(turn, notice.text) for turn, notice in self.notices]
        return (*_interleave_notices(self.turns, texts), AssistantText(self.content, raw=self.raw))

    def metadata(self, **more: Any) -> dict[str, Any]:
        """Metadata of the stored assistant message, without empty values."""
        values: dict[str, Any] = {
            "turns": [turn.as_json() for turn in self.turns],
            "sources": [source.as_json() for source in self.sources],
            "citations": [citation.as_json() for citation in self.citations],
            "notices": [{"turn": turn, **notice.as_json()} for turn, notice in self.notices],
            **self.provenance.as_json(),
            **more,
        }
        if self.is_partial:
            values["partial"] = True
        return {name: value for name, value in values.items() if value not in ([], None)}
