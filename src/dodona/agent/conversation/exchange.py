"""Exchanges: a question and its answer as they are stored, and as a later run reads them.

A run stores one user message and one assistant message. Turns with tool calls and their results
are in the metadata of the assistant message, so that later model calls see them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, cast

import msgspec

from dodona.agent.conversation.citations import Citation
from dodona.core.chunks import StreamChunk
from dodona.core.domain.conversations.conversation import StoredMessage
from dodona.core.domain.provenance import NO_PROVENANCE, Provenance
from dodona.core.messages import (
    AssistantText,
    ContextText,
    Message,
    RawMessage,
    ToolCall,
    ToolResult,
    UserText,
)
from dodona.core.ports.tools import SourceReference
from dodona.store.db.text import to_json


class RawRecord(msgspec.Struct, frozen=True):
    """A `RawMessage` with its body as text, so that the store can remove secrets from it."""

    provider: str
    body: str

    @classmethod
    def of(cls, raw: RawMessage | None) -> RawRecord | None:
        return None if raw is None else cls(raw.provider, raw.body.decode())

    def message(self) -> RawMessage:
        return RawMessage(self.provider, self.body.encode())


class CallRecord(msgspec.Struct, frozen=True):
    """A tool call and its result."""

    id: str
    name: str
    arguments: str
    result: str
    failed: bool
    duration_ms: int | None = None


class TurnRecord(msgspec.Struct, frozen=True):
    """A turn as it is stored."""

    text: str = ""
    thinking: str = ""
    raw: RawRecord | None = None
    calls: tuple[CallRecord, ...] = ()

    def turn(self) -> Turn:
        calls = self.calls
        return Turn(
            AssistantText(
                self.text,
                tuple(ToolCall(call.id, call.name, call.arguments) for call in calls),
                self.thinking,
                self.raw and self.raw.message(),
            ),
            tuple(ToolResult(c.id, c.name, c.result, failed=c.failed) for c in calls),
            tuple(call.duration_ms for call in calls),
        )


class NoticeRecord(msgspec.Struct, frozen=True):
    """The text of a notice that the model got, after a number of turns."""

    turn: int
    text: str


class ExchangeRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The metadata of a stored answer; `last` are the chunks that its steps do not have.

    The answer is all text that was shown. `last_text` is that of the last response, which follows
    the turns; it is None if that is all.
    """

    turns: tuple[TurnRecord, ...] = ()
    sources: tuple[SourceReference, ...] = ()
    citations: tuple[Citation, ...] = ()
    notices: tuple[NoticeRecord, ...] = ()
    provenance: Provenance = NO_PROVENANCE
    partial: bool = False
    last_text: str | None = None
    model: str | None = None
    tokens_used: int = 0
    last: tuple[StreamChunk, ...] = ()

    @classmethod
    def read(cls, message: StoredMessage) -> ExchangeRecord:
        return msgspec.json.decode(message.metadata or "{}", type=cls)


@dataclass(frozen=True, slots=True)
class Turn:
    """One response of a model, and the results of its tool calls, in call order."""

    answer: AssistantText
    results: tuple[ToolResult, ...] = ()
    durations: tuple[int | None, ...] = ()  # of the calls, in milliseconds

    def messages(self) -> Iterator[Message]:
        yield self.answer
        yield from self.results

    def record(self) -> TurnRecord:
        answer = self.answer
        calls = zip_longest(answer.calls, self.results, self.durations)
        return TurnRecord(
            answer.text,
            answer.thinking,
            RawRecord.of(answer.raw),
            tuple(
                CallRecord(call.id, call.name, call.arguments, result.text, result.failed, duration)
                for call, result, duration in calls
            ),
        )


def parse_arguments(arguments: str) -> dict[str, Any]:
    """Parse the arguments of a tool call; invalid JSON is returned as {"malformed": text}."""
    try:
        parsed: object = json.loads(arguments)
    except (ValueError, RecursionError):
        parsed = None
    return cast("dict[str, Any]", parsed) if isinstance(parsed, dict) else {"malformed": arguments}


def to_model_messages(
    messages: Iterable[StoredMessage], *, is_brief: bool = False
) -> tuple[Message, ...]:
    """Convert stored messages to model messages; a tool call and its result stay together.

    Brief messages are questions and answers only, without tool calls.
    """
    return tuple(
        expanded for message in messages for expanded in _expand(message, is_brief=is_brief)
    )


def _expand(message: StoredMessage, *, is_brief: bool) -> Iterator[Message]:
    match message.role:
        case "user":
            yield UserText(message.content)
        case "assistant" if is_brief:
            yield AssistantText(message.content)
        case "assistant":
            record = ExchangeRecord.read(message)
            turns = [each.turn() for each in record.turns]
            yield from _interleave_notices(turns, record.notices)
            text = message.content if record.last_text is None else record.last_text
            yield AssistantText(text, raw=message.raw)
        case _:
            # Not written by Dodona, so the call that it answers is unknown.
            yield ContextText(f"A tool returned: {message.content}")


def _interleave_notices(
    turns: Sequence[Turn], notices: Sequence[NoticeRecord]
) -> Iterator[Message]:
    """The messages of the turns, with the notices between them."""
    for index in range(len(turns) + 1):
        texts = [notice.text for notice in notices if notice.turn == index and notice.text]
        if texts:
            yield ContextText("\n".join(texts))
        if index < len(turns):
            yield from turns[index].messages()


@dataclass(frozen=True, slots=True)
class Exchange:
    """The answer of a run, the turns before it, and its sources.

    `content` is all text that the user was shown. `last_text` is that of the last response, which
    follows the turns; it is None if that is all.
    """

    content: str
    raw: RawMessage | None
    turns: tuple[Turn, ...]
    sources: tuple[SourceReference, ...] = ()
    is_partial: bool = False
    citations: tuple[Citation, ...] = ()
    provenance: Provenance = NO_PROVENANCE
    notices: tuple[NoticeRecord, ...] = ()
    last_text: str | None = None

    @property
    def text_after_turns(self) -> str:
        """The text of the last response; the turns have the others."""
        return self.content if self.last_text is None else self.last_text

    def messages(self) -> tuple[Message, ...]:
        """Model messages of the exchange, as they follow the question."""
        answer = AssistantText(self.text_after_turns, raw=self.raw)
        return (*_interleave_notices(self.turns, self.notices), answer)

    def metadata(
        self,
        *,
        model: str | None = None,
        tokens_used: int = 0,
        last: Sequence[StreamChunk] = (),
    ) -> str:
        """Metadata of the stored assistant message."""
        record = ExchangeRecord(
            turns=tuple(turn.record() for turn in self.turns),
            sources=self.sources,
            citations=self.citations,
            notices=self.notices,
            provenance=self.provenance,
            partial=self.is_partial,
            last_text=self.last_text,
            model=model,
            tokens_used=tokens_used,
            last=tuple(last),
        )
        return to_json(record)
