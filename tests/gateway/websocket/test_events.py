"""Chunks as events: every type has its row."""

from __future__ import annotations

from inspect import isfunction
from typing import Any, get_args

import pytest

from dodona.core import chunks
from dodona.core.chunks import StreamChunk
from dodona.core.errors import StoreError
from dodona.gateway.websocket.events import EVENT_BY_CHUNK_TYPE, EventName, to_event

MAKERS = {
    maker.__name__
    for maker in vars(chunks).values()
    if isfunction(maker) and maker.__module__ == chunks.__name__
}


def test_every_chunk_has_an_event_and_every_event_a_chunk() -> None:
    assert EVENT_BY_CHUNK_TYPE.keys() == MAKERS
    assert {*EVENT_BY_CHUNK_TYPE.values()} == {*get_args(EventName)}


@pytest.mark.parametrize(
    ("body", "name", "data"),
    [
        (chunks.content("Hi"), "text", {"content": "Hi"}),
        (
            chunks.tool_call(id="c1", name="f", arguments={"a": 1}, status="pending"),
            "tool_use",
            {"id": "c1", "name": "f", "arguments": {"a": 1}, "status": "pending"},
        ),
        (
            chunks.context_update(tokens=1, limit=2),
            "usage",
            {"context_tokens": 1, "max_context_tokens": 2},
        ),
        (
            chunks.system("limit_warning", "Nearly.", {"limit": 3}),
            "system",
            {"system_type": "limit_warning", "system_message": "Nearly.", "metadata": {"limit": 3}},
        ),
        (
            chunks.restart(7, "again"),
            "system",
            {
                "system_type": "restart",
                "system_message": "again",
                "metadata": {"discard_after": 7, "reason": "again"},
            },
        ),
        (
            chunks.thinking("Hm."),
            "system",
            {
                "system_type": "thinking",
                "system_message": "Hm.",
                "metadata": {"content": "Hm."},
            },
        ),
        (
            chunks.error(StoreError("Gone.")),
            "error",
            {"error": {"code": "store_unavailable", "message": "Gone.", "hint": ""}},
        ),
        (
            {"type": "of_tomorrow", "x": 1},
            "system",
            {"system_type": "of_tomorrow", "system_message": "", "metadata": {"x": 1}},
        ),
    ],
)
def test_an_event_carries_its_chunk(body: dict[str, Any], name: str, data: Any) -> None:
    """What has no event of its own is a system event, and nothing of it is lost."""
    assert to_event(StreamChunk(5, 1_000_002, body), "oracle:web:local:main") == {
        "event": name,
        "run_id": 5,
        "seq": 1_000_002,
        "session_key": "oracle:web:local:main",
        "data": data,
    }
