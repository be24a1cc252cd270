"""Chunks: the pieces of output that a run streams to its clients.

A chunk body is plain JSON: it is journalled with its step and rendered for each client.
`seq` increases within a run, also across a crash: each attempt starts at its own million.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType

from dodona.core.errors import DodonaError, ErrorBody, to_body
from dodona.core.ports.tools import SourceKind, SourceReference

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


Agent: TypeAlias = Annotated[
    str, Meta(description="The subagent that made the call; missing for the Oracle.")
]


class Chunk(msgspec.Struct, kw_only=True, tag_field="type"):
    """A chunk without its position in the stream."""

    def body(self) -> ChunkBody:
        """Return the chunk as JSON values."""
        return msgspec.to_builtins(self, enc_hook=str)


class ThinkingChunk(Chunk, tag="thinking"):
    """A piece of the model's reasoning."""

    content: str


class ContentChunk(Chunk, tag="content"):
    """A piece of the answer's text."""

    content: Annotated[str, Meta(description="A part of the answer.")]


class SourceChunk(Chunk, tag="source", kw_only=True):
    """A source that the answer cites."""

    path: Annotated[str, Meta(description="The source: a note, a file, `thread:12#34` or a URL.")]
    title: str
    lines: str
    excerpt: str
    kind: SourceKind
    version: Annotated[
        str, Meta(description="The version of the note or file that was read; may be empty.")
    ]


class ToolCallChunk(Chunk, tag="tool_call", kw_only=True):
    """A tool call of the model and its status."""

    id: str
    name: str
    arguments: Annotated[Any, Meta(description="The arguments from the model.")]
    status: ToolStatus
    agent: Agent | UnsetType = UNSET


class ResultSource(msgspec.Struct, frozen=True):
    """Where a result of a tool was found."""

    path: str
    lines: str
    kind: SourceKind


class ToolResultChunk(Chunk, tag="tool_result", kw_only=True):
    """The result of a tool call, or the reason why it failed."""

    id: str
    name: str
    result: str
    status: ToolStatus
    sources: list[ResultSource]
    agent: Agent | UnsetType = UNSET


class SystemChunk(Chunk, tag="system", kw_only=True):
    """A warning, or the reason why the run ended. Shown to people, never stored as a message."""

    system_type: str
    system_message: Annotated[str, Meta(description="A message for the user.")]
    metadata: Mapping[str, Any]


class ContextUpdateChunk(Chunk, tag="context_update", kw_only=True):
    """Tokens in the context, and the most it may hold."""

    context_tokens: int
    max_context_tokens: int


class ApprovalChunk(Chunk, tag="approval", kw_only=True):
    """A request for approval of a tool call; without an answer in time the call is denied."""

    id: str
    approval: Annotated[
        str, Meta(description="The id to decide with: the call id and its position in the run.")
    ]
    name: str
    arguments: Annotated[Mapping[str, Any], Meta(description="The arguments from the model.")]
    reason: Annotated[str, Meta(description="Why the call needs approval.")]
    expires_at: Annotated[
        float, Meta(description="Unix time in seconds. After it, the call is denied.")
    ]
    agent: Agent | UnsetType = UNSET


class RestartChunk(Chunk, tag="restart", kw_only=True):
    """The answer starts again and may differ."""

    discard_after: Annotated[
        int, Meta(description="Discard all earlier chunks with a greater seq.")
    ]
    reason: str


class DoneChunk(Chunk, tag="done", kw_only=True):
    """The end of a successful run.

    `finish` is "length" if a limit truncated the answer, "refusal" if the model declined.
    """

    tokens_used: int
    model_used: str
    context_id: Annotated[
        str, Meta(description="Pass it with the next question to continue from here.")
    ]
    context_tokens_remaining: int
    finish: DoneFinish = "stop"


class ErrorChunk(Chunk, tag="error"):
    """The end of a failed run."""

    error: ErrorBody


AnyChunk: TypeAlias = (
    ThinkingChunk
    | ContentChunk
    | SourceChunk
    | ToolCallChunk
    | ToolResultChunk
    | SystemChunk
    | ContextUpdateChunk
    | ApprovalChunk
    | RestartChunk
    | DoneChunk
    | ErrorChunk
)


def thinking(text: str) -> ChunkBody:
    """Return a `ThinkingChunk` body."""
    return ThinkingChunk(content=text).body()


def content(text: str) -> ChunkBody:
    """Return a `ContentChunk` body."""
    return ContentChunk(content=text).body()


def source(cited: SourceReference) -> ChunkBody:
    """Return a `SourceChunk` body."""
    return {"type": "source", **msgspec.to_builtins(cited)}


def tool_call(*, id: str, name: str, arguments: Any, status: ToolStatus) -> ChunkBody:  # noqa: A002
    """Return a `ToolCallChunk` body."""
    return ToolCallChunk(id=id, name=name, arguments=arguments, status=status).body()


def tool_result(
    *,
    id: str,  # noqa: A002
    name: str,
    result: str,
    status: ToolStatus,
    sources: Sequence[SourceReference] = (),
) -> ChunkBody:
    """Return a `ToolResultChunk` body."""
    found = [ResultSource(each.path, each.lines, each.kind) for each in sources]
    return ToolResultChunk(id=id, name=name, result=result, status=status, sources=found).body()


def system(system_type: str, message: str, metadata: Mapping[str, Any]) -> ChunkBody:
    """Return a `SystemChunk` body."""
    return SystemChunk(
        system_type=system_type, system_message=message, metadata=dict(metadata)
    ).body()


def context_update(*, tokens: int, limit: int) -> ChunkBody:
    """Return a `ContextUpdateChunk` body."""
    return ContextUpdateChunk(context_tokens=tokens, max_context_tokens=limit).body()


def restart(discard_after: int, reason: str) -> ChunkBody:
    """Return a `RestartChunk` body."""
    return RestartChunk(discard_after=discard_after, reason=reason).body()


def error(failure: DodonaError) -> ChunkBody:
    """Return an `ErrorChunk` body."""
    return ErrorChunk(error=to_body(failure)).body()


def approval(
    *,
    id: str,  # noqa: A002
    approval: str,
    name: str,
    arguments: Mapping[str, Any],
    reason: str,
    expires_at: float,
) -> ChunkBody:
    """Return an `ApprovalChunk` body."""
    return ApprovalChunk(
        id=id,
        approval=approval,
        name=name,
        arguments=dict(arguments),
        reason=reason,
        expires_at=expires_at,
    ).body()


def done(
    *,
    tokens_used: int,
    model_used: str,
    context_id: str,
    context_tokens_remaining: int,
    finish: DoneFinish = "stop",
) -> ChunkBody:
    """Return a `DoneChunk` body."""
    return DoneChunk(
        tokens_used=tokens_used,
        model_used=model_used,
        context_id=context_id,
        context_tokens_remaining=context_tokens_remaining,
        finish=finish,
    ).body()
