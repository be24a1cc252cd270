"""Chunks: JSON with a place in the stream."""

from __future__ import annotations

import json

from msgspec import to_builtins
from msgspec.structs import asdict

from dodona.core import chunks
from dodona.core.chunks import StreamChunk
from dodona.core.errors import BudgetExceeded, to_body
from dodona.core.ports.tools import SourceReference

BODIES = {
    "thinking": chunks.ThinkingChunk("hm"),
    "content": chunks.ContentChunk("Oak."),
    "source": chunks.SourceChunk(**asdict(SourceReference("a.md", "A", "3-9", "oaks"))),
    "tool_call": chunks.ToolCallChunk(id="c", name="x", arguments={"q": 1}, status="pending"),
    "tool_result": chunks.ToolResultChunk(
        id="c", name="x", result="r", status="success", sources=[]
    ),
    "system": chunks.SystemChunk(
        system_type="limit_warning", system_message="7 of 10", metadata={"limit_value": 10}
    ),
    "context_update": chunks.ContextUpdateChunk(context_tokens=5, max_context_tokens=10),
    "restart": chunks.RestartChunk(discard_after=1_000_003, reason="it was cut"),
    "done": chunks.DoneChunk(
        tokens_used=1, model_used="m", context_id="9", context_tokens_remaining=2
    ),
    "error": chunks.ErrorChunk(to_body(BudgetExceeded("no more.", hint="Wait."))),
}


def test_every_chunk_is_json_and_says_what_it_is() -> None:
    """With the run and the place in it."""
    for name, body in BODIES.items():
        told = StreamChunk(7, 1_000_001, body).as_json()
        assert json.loads(json.dumps(told)) == told
        assert (told["type"], told["run_id"], told["seq"]) == (name, 7, 1_000_001)


def test_an_error_is_told_as_everywhere() -> None:
    """In the one shape of errors."""
    assert to_builtins(BODIES["error"])["error"] == {
        "code": "budget_exceeded",
        "message": "no more.",
        "hint": "Wait.",
    }
