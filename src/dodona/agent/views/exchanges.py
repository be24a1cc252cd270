"""Documents of answers, exchanges and tool calls, as seed 000 defines them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, UnsetType

from dodona.agent.conversation.citations import Citation
from dodona.agent.conversation.exchange import ExchangeRecord, parse_arguments
from dodona.core.chunks import DoneFinish, TerminationReason, Untrusted
from dodona.core.domain.conversations.conversation import StoredMessage
from dodona.core.domain.trust import MarkList, sort_marks
from dodona.core.json_document import JsonDocument, Timestamp
from dodona.core.ports.tools import SourceReference


class ExchangeToolCall(JsonDocument, kw_only=True):
    """A tool call of an answer."""

    id: str
    name: str
    arguments: Annotated[Any, Meta(description="The arguments from the model.")]
    result: str | None
    status: Literal["pending", "success", "error"]
    duration_ms: int | None


class OracleExchange(JsonDocument, kw_only=True):
    """A stored message; only assistant messages have tool calls."""

    id: str
    role: Annotated[str, Meta(extra_json_schema={"enum": ["user", "assistant", "tool"]})]
    content: str
    tool_calls: list[ExchangeToolCall] | None
    tool_call_id: str | None
    timestamp: Timestamp
    token_count: int
    key_insight: str | None
    mentioned_symbols: tuple[str, ...]
    mentioned_files: tuple[str, ...]
    untrusted: Untrusted | UnsetType = UNSET
    marks: MarkList


class OracleAnswer(JsonDocument, kw_only=True):
    """The answer of a run, with its sources, tool calls and token counts."""

    answer: str
    sources: list[SourceReference]
    citations: Annotated[list[Citation], Meta(description="The cited sources, verified.")]
    tool_calls: list[ExchangeToolCall]
    tokens_used: int
    model_used: str
    context_id: Annotated[
        str, Meta(description="Pass it with the next question to continue from here.")
    ]
    run_id: int
    context_tokens_remaining: int
    finish: DoneFinish
    termination_reason: TerminationReason | UnsetType = UNSET
    untrusted: Untrusted | UnsetType = UNSET
    marks: MarkList


def exchange_document(message: StoredMessage) -> OracleExchange:
    """Return the document of a stored message."""
    record = ExchangeRecord.read(message)
    calls, provenance = tool_calls_of(record), record.provenance
    is_public = not (provenance.marks and provenance.is_private)
    return OracleExchange(
        id=str(message.id),
        role=message.role,
        content=message.content,
        tool_calls=calls or None,
        tool_call_id=message.tool_call_id,
        timestamp=Timestamp(message.created_at),
        token_count=message.token_count,
        key_insight=message.key_insight,
        mentioned_symbols=message.mentioned_symbols,
        mentioned_files=message.mentioned_files,
        untrusted=UNSET if is_public else True,
        marks=sort_marks(provenance.marks),
    )


def tool_calls_of(record: ExchangeRecord) -> list[ExchangeToolCall]:
    """Return the tool calls of all turns, in order."""
    return [
        ExchangeToolCall(
            id=call.id,
            name=call.name,
            arguments=parse_arguments(call.arguments),
            result=call.result,
            status="error" if call.failed else "success",
            duration_ms=call.duration_ms,
        )
        for turn in record.turns
        for call in turn.calls
    ]
