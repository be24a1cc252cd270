"""Chunks: JSON with a place in the stream."""

from __future__ import annotations

import json

from dodona.core import chunks
from dodona.core.chunks import StreamChunk
from dodona.core.errors import BudgetExceeded
from dodona.core.ports.tools import SourceReference

BODIES = {
    "thinking": chunks.thinking("hm"),
    "content": chunks.content("Oak."),
    "source": chunks.source(SourceReference("a.md", "A", "3-9", "oaks")),
    "tool_call": chunks.tool_call(id="c", name="x", arguments={"q": 1}, status="pending"),
    "tool_result": chunks.tool_result(id="c", name="x", result="r", status="success"),
    "system": chunks.system("limit_warning", "7 of 10", {"limit_value": 10}),
    "context_update": chunks.context_update(tokens=5, limit=10),
    "restart": chunks.restart(1_000_003, "it was cut"),
    "done": chunks.done(tokens_used=1, model_used="m", context_id="9", context_tokens_remaining=2),
    "error": chunks.error(BudgetExceeded("no more.", hint="Wait.")),
}


def test_every_chunk_is_json_and_says_what_it_is() -> None:
    """With the run and the place in it."""
    for name, body in BODIES.items():
        told = StreamChunk(7, 1_000_001, body).as_json()
        assert json.loads(json.dumps(told)) == told
        assert (told["type"], told["run_id"], told["seq"]) == (name, 7, 1_000_001)


def test_an_error_is_told_as_everywhere() -> None:
    """In the one shape of errors."""
    assert BODIES["error"]["error"] == {
        "code": "budget_exceeded",
        "message": "no more.",
        "hint": "Wait.",
    }
