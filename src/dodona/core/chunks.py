"""Chunks: the pieces of output that a run streams to its clients.

A chunk is journalled with its step, and encoded for each client.
`seq` increases within a run, also across a crash: each attempt starts at its own million.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType

from dodona.core.domain.trust import Mark, MarkList
from dodona.core.errors import ErrorBody
from dodona.core.ports.tools import SourceKind

SEQ_PER_ATTEMPT: Final = 1_000_000

ToolStatus: TypeAlias = Literal["pending", "success", "error"]
DoneFinish: TypeAlias = Literal["stop", "length", "refusal"]
Agent: TypeAlias = Annotated[
    str, Meta(description="The subagent that made the call; missing for the Oracle.")
]


Untrusted: TypeAlias = Annotated[
    Literal[True],
    Meta(
        description="Set if the model has read untrusted and private text: do not load images, "
        "and do not follow links, before the user asks for it. Their URLs may contain private text."
    ),
]


TerminationReason: TypeAlias = Annotated[
    str,
    Meta(
        description="Why the run ended: finished, max_iterations, token_budget, timeout, "
        "no_progress, error_limit, max_tokens, cancelled or error; or a reason of your own "
        "decision tree. Missing if an earlier version has stored the run."
    ),
]


class Chunk(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """A chunk without its position in the stream."""


class ThinkingChunk(Chunk, frozen=True, tag="thinking"):
    """A piece of the model's reasoning."""

    content: str
    untrusted: Untrusted | UnsetType = UNSET


class ContentChunk(Chunk, frozen=True, tag="content"):
    """A piece of the answer's text."""

    content: Annotated[str, Meta(description="A part of the answer.")]
    untrusted: Untrusted | UnsetType = UNSET


class SourceChunk(Chunk, frozen=True, tag="source", kw_only=True):
    """A source that the answer cites."""

    path: Annotated[str, Meta(description="The source: a note, a file, `thread:12#34` or a URL.")]
    title: str
    lines: str
    excerpt: str
    kind: SourceKind
    version: Annotated[
        str, Meta(description="The version of the note or file that was read; may be empty.")
    ]


class ToolCallChunk(Chunk, frozen=True, tag="tool_call", kw_only=True):
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


class ToolResultChunk(Chunk, frozen=True, tag="tool_result", kw_only=True):
    """The result of a tool call, or the reason why it failed."""

    id: str
    name: str
    result: str
    status: ToolStatus
    sources: list[ResultSource]
    agent: Agent | UnsetType = UNSET


class SystemChunk(Chunk, frozen=True, tag="system", kw_only=True):
    """A warning, or the reason why the run ended. Shown to people, never stored as a message."""

    system_type: str
    system_message: Annotated[str, Meta(description="A message for the user.")]
    metadata: Mapping[str, Any]
    timestamp: (
        Annotated[
            str,
            Meta(
                description="When it was sent first. Missing if an earlier version has stored it.",
                extra_json_schema={"format": "date-time"},
            ),
        ]
        | UnsetType
    ) = UNSET


class ContextUpdateChunk(Chunk, frozen=True, tag="context_update", kw_only=True):
    """Tokens in the context, and the most it may hold."""

    context_tokens: int
    max_context_tokens: int


class ApprovalChunk(Chunk, frozen=True, tag="approval", kw_only=True):
    """A request for approval of a tool call; without an answer in time the call is denied."""

    id: str
    approval: Annotated[
        str, Meta(description="The id to decide with: the call id and its position in the run.")
    ]
    name: str
    arguments: Annotated[Mapping[str, Any], Meta(description="The arguments from the model.")]
    reason: Annotated[str, Meta(description="Why the call needs approval.")]
    marks: Annotated[
        list[Mark],
        Meta(description="Untrusted sources that the run has read and that may have led here."),
    ]
    expires_at: Annotated[
        float, Meta(description="Unix time in seconds. After it, the call is denied.")
    ]
    agent: Agent | UnsetType = UNSET


class RestartChunk(Chunk, frozen=True, tag="restart", kw_only=True):
    """The answer starts again and may differ."""

    discard_after: Annotated[
        int, Meta(description="Discard all earlier chunks with a greater seq.")
    ]
    reason: str


class DoneChunk(Chunk, frozen=True, tag="done", kw_only=True):
    """The end of a successful run.

    `finish` is "length" if a limit ended the run or truncated the answer, "refusal" if the model
    declined, else "stop". `termination_reason` says which limit.
    """

    tokens_used: int
    model_used: str
    context_id: Annotated[
        str, Meta(description="Pass it with the next question to continue from here.")
    ]
    context_tokens_remaining: int
    finish: DoneFinish = "stop"
    termination_reason: TerminationReason | UnsetType = UNSET
    untrusted: Untrusted | UnsetType = UNSET
    marks: MarkList = []


class ErrorChunk(Chunk, frozen=True, tag="error"):
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


class StreamChunk(msgspec.Struct, frozen=True, array_like=True):
    """A chunk and its position in the stream of a run."""

    run_id: int
    seq: int
    chunk: AnyChunk

    def as_json(self) -> dict[str, Any]:
        return {**msgspec.to_builtins(self.chunk), "run_id": self.run_id, "seq": self.seq}

    @property
    def is_last(self) -> bool:
        """Whether this chunk ends the stream."""
        return isinstance(self.chunk, DoneChunk | ErrorChunk)
