"""Chunks as events: every type has its row."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from dodona.core import chunks
from dodona.core.chunks import StreamChunk
from dodona.core.errors import StoreError, to_body
from dodona.gateway.websocket.events import EVENT_BY_CHUNK_TYPE, EventName, to_event

TYPES = {each.__struct_config__.tag for each in get_args(chunks.AnyChunk)}


def test_every_chunk_has_an_event_and_every_event_a_chunk() -> None:
    assert EVENT_BY_CHUNK_TYPE.keys() == TYPES
    assert {*EVENT_BY_CHUNK_TYPE.values()} == {*get_args(EventName)}


@pytest.mark.parametrize(
    ("chunk", "name", "data"),
    [
        (chunks.ContentChunk("Hi"), "text", {"content": "Hi"}),
        (
            chunks.ToolCallChunk(id="c1", name="f", arguments={"a": 1}, status="pending"),
            "tool_use",
            {"id": "c1", "name": "f", "arguments": {"a": 1}, "status": "pending"},
        ),
        (
            chunks.ContextUpdateChunk(context_tokens=1, max_context_tokens=2),
            "usage",
            {"context_tokens": 1, "max_context_tokens": 2},
        ),
        (
            chunks.SystemChunk(
                system_type="limit_warning", system_message="Nearly.", metadata={"limit": 3}
            ),
            "system",
            {"system_type": "limit_warning", "system_message": "Nearly.", "metadata": {"limit": 3}},
        ),
        (
            chunks.RestartChunk(discard_after=7, reason="again"),
            "system",
            {
                "system_type": "restart",
                "system_message": "again",
                "metadata": {"discard_after": 7, "reason": "again"},
            },
        ),
        (
            chunks.ThinkingChunk("Hm."),
            "system",
            {
                "system_type": "thinking",
                "system_message": "Hm.",
                "metadata": {"content": "Hm."},
            },
        ),
        (
            chunks.ErrorChunk(to_body(StoreError("Gone."))),
            "error",
            {"error": {"code": "store_unavailable", "message": "Gone.", "hint": ""}},
        ),
    ],
)
def test_an_event_carries_its_chunk(chunk: chunks.AnyChunk, name: str, data: Any) -> None:
    """What has no event of its own is a system event, and nothing of it is lost."""
    assert to_event(StreamChunk(5, 1_000_002, chunk), "oracle:web:local:main") == {
        "event": name,
        "run_id": 5,
        "seq": 1_000_002,
        "session_key": "oracle:web:local:main",
        "data": data,
    }
