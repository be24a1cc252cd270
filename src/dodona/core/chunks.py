"""Chunks: the pieces of output that a run streams to its clients.

A chunk body is plain JSON: it is journalled with its step and rendered for each client.
`seq` increases within a run, also across a crash: each attempt starts at its own million.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import msgspec

from dodona.core.errors import DodonaError, as_json
from dodona.core.ports.tools import SourceReference

SEQ_PER_ATTEMPT: Final = 1_000_000

ToolStatus: TypeAlias = Literal["pending", "success", "error"]
DoneFinish: TypeAlias = Literal["stop", "length", "refusal"]
ChunkBody: TypeAlias = dict[str, Any]


class StreamChunk(NamedTuple):
    """A chunk body and its position in the stream; `body["type"]` is its type."""

    run_id: int
    seq: int
    body: Mapping[str, Any]

    def as_json(self) -> dict[str, Any]:
        return {**self.body, "run_id": self.run_id, "seq": self.seq}

    @property
    def is_last(self) -> bool:
        """Whether this chunk ends the stream."""
        return self.body["type"] in ("done", "error")


def thinking(text: str) -> ChunkBody:
    """A piece of the model's reasoning."""
    return {"type": "thinking", "content": text}


def content(text: str) -> ChunkBody:
    """A piece of the answer's text."""
    return {"type": "content", "content": text}


def source(cited: SourceReference) -> ChunkBody:
    """A source that the answer cites."""
    return {"type": "source", **msgspec.to_builtins(cited)}


def tool_call(*, id: str, name: str, arguments: Any, status: ToolStatus) -> ChunkBody:  # noqa: A002
    """A tool call of the model and its status."""
    return {"type": "tool_call", "id": id, "name": name, "arguments": arguments, "status": status}


def tool_result(
    *,
    id: str,  # noqa: A002
    name: str,
    result: str,
    status: ToolStatus,
    sources: Sequence[SourceReference] = (),
) -> ChunkBody:
    """The result of a tool call, or the reason why it failed."""
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
    """A warning, or the reason why the run ended. Shown to people, never stored as a message."""
    return {
        "type": "system",
        "system_type": system_type,
        "system_message": message,
        "metadata": dict(metadata),
    }


def context_update(*, tokens: int, limit: int) -> ChunkBody:
    """Tokens in the context, and the most it may hold."""
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
    """A request for approval of a tool call; without an answer in time the call is denied."""
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
    """Discard all chunks after this `seq`: the answer starts again and may differ."""
    return {"type": "restart", "discard_after": discard_after, "reason": reason}


def done(
    *,
    tokens_used: int,
    model_used: str,
    context_id: str,
    context_tokens_remaining: int,
    finish: DoneFinish = "stop",
) -> ChunkBody:
    """The end of a successful run.

    `finish` is "length" if a limit truncated the answer, "refusal" if the model declined.
    """
    return {
        "type": "done",
        "tokens_used": tokens_used,
        "model_used": model_used,
        "context_id": context_id,
        "context_tokens_remaining": context_tokens_remaining,
        "finish": finish,
    }


def error(failure: DodonaError) -> ChunkBody:
    """The end of a failed run."""
    return {"type": "error", **as_json(failure)}
