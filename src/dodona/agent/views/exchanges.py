"""JSON forms of exchanges and tool calls, as seed 000 defines: OracleExchange and ToolCall."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dodona.agent.conversation.exchange import parse_arguments
from dodona.agent.views.documents import iso
from dodona.core.domain.conversations.conversation import StoredMessage


def exchange_json(message: StoredMessage) -> dict[str, Any]:
    """Return the JSON form of a stored message; only assistant messages have tool calls."""
    calls = tool_calls_json(message.metadata) if message.role == "assistant" else None
    return {
        "id": str(message.id),
        "role": message.role,
        "content": message.content,
        "tool_calls": calls or None,
        "tool_call_id": message.tool_call_id,
        "timestamp": iso(message.created_at),
        "token_count": message.token_count,
        "key_insight": message.key_insight,
        "mentioned_symbols": list(message.mentioned_symbols),
        "mentioned_files": list(message.mentioned_files),
    }


def tool_calls_json(metadata: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """Return the tool calls of all turns in a message's metadata, in order."""
    turns = (metadata or {}).get("turns", ())
    return [_tool_call_json(call) for turn in turns for call in turn.get("calls", ())]


def _tool_call_json(call: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "id": call["id"],
        "name": call["name"],
        "arguments": parse_arguments(call["arguments"]),
        "result": call["result"],
        "status": "error" if call["failed"] else "success",
        "duration_ms": call.get("duration_ms"),
    }
