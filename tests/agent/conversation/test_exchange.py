"""Exchanges: what was kept is read as it was said, calls beside their results."""

from __future__ import annotations

import msgspec

from dodona.agent.conversation.exchange import Exchange, Turn, TurnRecord, to_model_messages
from dodona.core.domain.conversations.conversation import StoredMessage
from dodona.core.messages import AssistantText, RawMessage, ToolCall, ToolResult, UserText

CALLS = (ToolCall("a", "vault_read", '{"path": "x.md"}'), ToolCall("b", "vault_list", "{"))
TURN = Turn(
    AssistantText("I look.", CALLS, "hm", RawMessage("anthropic", b'[{"type":"text"}]')),
    (
        ToolResult("a", "vault_read", "oaks"),
        ToolResult("b", "vault_list", "no JSON", failed=True),
    ),
    (3, None),
)


def test_a_turn_survives_being_kept() -> None:
    """Also the provider's own JSON, to the byte."""
    kept = msgspec.json.decode(msgspec.json.encode(TURN.record()), type=TurnRecord)
    assert kept.turn() == TURN


def test_history_is_what_was_said() -> None:
    """Question, turns with their calls and results, answer."""
    kept = [
        StoredMessage("user", "Oaks?", 1),
        StoredMessage(
            "assistant",
            "Old.",
            1,
            metadata=Exchange("", None, (TURN,)).metadata(model="oak"),
            raw=RawMessage("anthropic", b"[]"),
        ),
    ]
    assert to_model_messages(kept) == (
        UserText("Oaks?"),
        *TURN.messages(),
        AssistantText("Old.", raw=RawMessage("anthropic", b"[]")),
    )


def test_what_others_have_written_is_read() -> None:
    """A message without metadata; a tool's message of its own."""
    kept = [StoredMessage("assistant", "Old.", 1), StoredMessage("tool", "42", 1, tool_call_id="x")]
    answer, told = to_model_messages(kept)
    assert answer == AssistantText("Old.")
    assert not isinstance(told, AssistantText | ToolResult)
    assert "42" in told.text
