"""Maps the chunks of a run to WebSocket events.

Server-sent events carry chunks unchanged. A WebSocket has fewer event types; a chunk without a
matching one becomes a `system` event, whose `system_type` is the chunk's type.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

from msgspec import to_builtins

from dodona.core.chunks import StreamChunk

EventName: TypeAlias = Literal[
    "text", "tool_use", "tool_result", "system", "approval", "usage", "done", "error"
]

EVENT_BY_CHUNK_TYPE: Final[Mapping[str, EventName]] = {
    "content": "text",
    "tool_call": "tool_use",
    "tool_result": "tool_result",
    "system": "system",
    "thinking": "system",
    "source": "system",
    "restart": "system",
    "approval": "approval",
    "context_update": "usage",
    "done": "done",
    "error": "error",
}
# The field of such a chunk that becomes the `system_message`.
_MESSAGE_KEYS: Final = {"thinking": "content", "source": "path", "restart": "reason"}


def to_event(chunk: StreamChunk, session_key: str | None) -> dict[str, Any]:
    """Return the event of a chunk; `data` is the chunk without its type, run and seq."""
    data = to_builtins(chunk.chunk)
    type_: str = data.pop("type")
    if key := _MESSAGE_KEYS.get(type_):
        data = {"system_type": type_, "system_message": data[key], "metadata": data}
    return {
        "event": EVENT_BY_CHUNK_TYPE[type_],
        "run_id": chunk.run_id,
        "seq": chunk.seq,
        "session_key": session_key,
        "data": data,
    }
