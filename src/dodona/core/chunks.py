"""What a run sends out, piece by piece, to whoever listens.

A chunk is JSON from the beginning: it is journalled with its step, and rendered for each client.
`seq` rises within a run, also over a crash: each attempt begins its own million.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from dodona.core.errors import DodonaError, as_json
from dodona.core.ports.tools import SourceReference

SEQ_PER_ATTEMPT: Final = 1_000_000

ToolStatus: TypeAlias = Literal["pending", "success", "error"]
DoneFinish: TypeAlias = Literal["stop", "length", "refusal"]
ChunkBody: TypeAlias = dict[str, Any]


class StreamChunk(NamedTuple):
    """A body with its place in the stream; `body["type"]` says what it is."""

    run_id: int
    seq: int
    body: Mapping[str, Any]

    def as_json(self) -> dict[str, Any]:
        return {**self.body, "run_id": self.run_id, "seq": self.seq}

    @property
    def is_last(self) -> bool:
        """Does nothing come after it?"""
        return self.body["type"] in ("done", "error")


def thinking(text: str) -> ChunkBody:
    return {"type": "thinking", "content": text}


def content(text: str) -> ChunkBody:
    return {"type": "content", "content": text}


def source(cited: SourceReference) -> ChunkBody:
    return {"type": "source", **cited.as_json()}


def tool_call(*, id: str, name: str, arguments: Any, status: ToolStatus) -> ChunkBody:  # noqa: A002
    return {"type": "tool_call", "id": id, "name": name, "arguments": arguments, "status": status}


def tool_result(
    *,
    id: str,  # noqa: A002
    name: str,
    result: str,
    status: ToolStatus,
    sources: Sequence[SourceReference] = (),
) -> ChunkBody:
    return {
        "type": "tool_result",
        "id": id,
        "name": name,
        "result": result,
        "status": status,
        "sources": [
            {"path": source.path, "lines": source.lines, "kind": source.kind.value}
            for source in sources
        ],
    }


def system(system_type: str, message: str, metadata: Mapping[str, Any]) -> ChunkBody:
    """A warning, or why the run ended. It is shown, and never kept in the conversation."""
    return {
        "type": "system",
        "system_type": system_type,
        "system_message": message,
        "metadata": dict(metadata),
    }


def context_update(*, tokens: int, limit: int) -> ChunkBody:
    return {"type": "context_update", "context_tokens": tokens, "max_context_tokens": limit}


def approval(
    *,
    id: str,  # noqa: A002
    approval: str,
    name: str,
    arguments: Mapping[str, Any],
    reason: str,
    expires_at: float,
) -> ChunkBody:
    """A person must allow this call before it is made; without an answer in time it is not."""
    return {
        "type": "approval",
        "id": id,
        "approval": approval,
        "name": name,
        "arguments": dict(arguments),
        "reason": reason,
        "expires_at": expires_at,
    }


def restart(discard_after: int, reason: str) -> ChunkBody:
    """Drop what came after this place: it is said again, perhaps otherwise."""
    return {"type": "restart", "discard_after": discard_after, "reason": reason}


def done(
    *,
    tokens_used: int,
    model_used: str,
    context_id: str,
    context_tokens_remaining: int,
    finish: DoneFinish = "stop",
) -> ChunkBody:
    """`finish` is "length" when a limit cut the answer, "refusal" when the model declined."""
    return {
        "type": "done",
        "tokens_used": tokens_used,
        "model_used": model_used,
        "context_id": context_id,
        "context_tokens_remaining": context_tokens_remaining,
        "finish": finish,
    }


def error(failure: DodonaError) -> ChunkBody:
    return {"type": "error", **as_json(failure)}
