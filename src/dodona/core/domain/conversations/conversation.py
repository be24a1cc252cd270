"""A stored conversation: a tree whose nodes are runs, each with its messages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

import msgspec

from dodona.core.chunks import DoneFinish, StreamChunk
from dodona.core.domain.agents import DEFAULT_AGENT, QueueMode
from dodona.core.domain.api_tokens import ApiToken
from dodona.core.domain.conversations.contexts import DEFAULT_TOKEN_BUDGET, OracleContext
from dodona.core.domain.notices import StoredNotice
from dodona.core.domain.projects import DEFAULT_PROJECT, Project
from dodona.core.domain.trust import NO_MARKS, Marks
from dodona.core.errors import ErrorBody
from dodona.core.messages import RawMessage

MAX_QUEUED: Final = 1_000  # messages queued in a lane, from all senders


class RunStatus(Enum):
    """QUEUED waits for its lane; WAITING is shown for a running run that needs an approval."""

    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def has_ended(self) -> bool:
        return self in (RunStatus.SUCCEEDED, RunStatus.FAILED, RunStatus.CANCELLED)


@dataclass(frozen=True, slots=True)
class NewMessage:
    """A message to store. `metadata` is the JSON of a record, such as the turns of an answer."""

    role: str
    content: str
    token_count: int
    metadata: str | None = None
    raw: RawMessage | None = None
    tool_call_id: str | None = None
    key_insight: str | None = None
    mentioned_symbols: tuple[str, ...] = ()
    mentioned_files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StoredMessage(NewMessage):
    id: int = 0
    run_id: int = 0
    ordinal: int = 0
    created_at: float = 0.0


@dataclass(frozen=True, slots=True)
class Conversation:
    id: int
    user_id: str
    project_id: str
    agent_id: str
    title: str
    head_id: int | None
    created_at: float
    updated_at: float


@dataclass(frozen=True, slots=True)
class RunNode:
    """A run as a node of its conversation's tree."""

    id: int
    conversation_id: int
    parent_id: int | None
    status: RunStatus
    attempt: int
    owner: str | None
    session_key: str | None
    origin: str
    label: str | None
    tokens: int
    pins_hash: str | None
    error: ErrorBody | None
    created_at: float
    started_at: float | None
    ended_at: float | None
    cancel_requested_at: float | None
    token_id: int | None  # of the request
    finish: DoneFinish | None  # of its answer
    termination_reason: str | None  # None until it ends


@dataclass(frozen=True, slots=True)
class Summary:
    """Replaces a run and all runs before it in the window.

    `marks` are the untrusted sources of the runs, `is_private` is set if they read private text.
    """

    run_id: int
    content: str
    token_count: int
    marks: Marks = NO_MARKS
    is_private: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSummary:
    """A text that replaces a run and all runs before it, and the facts extracted from them.

    `head_id` is the head at the time of summarising, `context_tokens` the size of the context
    with this summary. `insights` are by run id.
    """

    run_id: int
    content: str
    token_count: int
    model: str | None = None  # the model that wrote it
    decisions: tuple[str, ...] = ()
    mentioned_symbols: tuple[str, ...] = ()
    mentioned_files: tuple[str, ...] = ()
    insights: Mapping[int, str] = field(default_factory=dict[int, str])
    marks: Marks = NO_MARKS
    is_private: bool = False
    head_id: int | None = None
    context_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Window:
    """The newest runs that fit, oldest first, after a summary of the earlier ones."""

    head_id: int | None
    messages: tuple[StoredMessage, ...]
    summary: Summary | None = None
    is_truncated: bool = False  # older runs exist that are neither included nor summarised

    @property
    def tokens(self) -> int:
        total = sum(message.token_count for message in self.messages)
        return total + (self.summary.token_count if self.summary else 0)


@dataclass(frozen=True, slots=True)
class CachedWindow:
    """A window that the caller has read before; still valid if the conversation is unchanged.

    `payload` is the caller's own data; the store does not look at it.
    """

    head_id: int
    updated_at: float  # of the conversation
    payload: Any = field(default=None, compare=False)

    def is_current(self, head_id: int | None, updated_at: float) -> bool:
        """Whether a conversation with this head and time of update is unchanged."""
        return (self.head_id, self.updated_at) == (head_id, updated_at)


class RunOptions(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Options of a question, stored with it. By default those of the agent and the user apply.

    `sources` limits the categories of tools; None allows all. `instructions` are a client's.
    """

    model: str | None = None
    max_tokens: int | None = None  # of all output
    sources: tuple[str, ...] | None = None
    thinking: bool | None = None
    temperature: float | None = None
    stop: tuple[str, ...] = ()
    instructions: str = ""


NO_OPTIONS: Final = RunOptions()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """A question to accept: in a session, or otherwise in the context of a user's project.

    `parent_id` is the run to continue from; by default the head when the question starts.
    `new_conversation` closes the context first, so that the question starts a new conversation.
    `Oracle.submit` fills in the rest: `queueing` says what happens while another question is being
    answered; beyond `queue_limit` the question is rejected.
    """

    user_id: str
    project_id: str = DEFAULT_PROJECT
    question: str
    options: RunOptions = NO_OPTIONS
    parent_id: int | None = None
    new_conversation: bool = False
    origin: str = "user"
    agent_id: str = DEFAULT_AGENT
    session_key: str | None = None
    token: ApiToken | None = None  # of the request: it pays, and may restrict agents and models
    token_count: int = 0  # of the question
    queueing: QueueMode = QueueMode.QUEUE
    queue_limit: int = MAX_QUEUED
    token_budget: int = DEFAULT_TOKEN_BUDGET  # of a new context, and of a session
    cached_window: CachedWindow | None = None

    @property
    def token_id(self) -> int | None:
        return None if self.token is None else self.token.id


@dataclass(frozen=True, slots=True)
class QueuedRun:
    """An accepted question that waits for its lane.

    `interrupted_ids` are the runs that are cancelled in favour of it.
    """

    run_id: int
    conversation_id: int
    interrupted_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to drive a run, valid until a later attempt is claimed."""

    run_id: int
    conversation_id: int
    attempt: int
    owner: str
    parent_id: int | None = None

    @property
    def is_resumed(self) -> bool:
        return self.attempt > 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedRun(Claim):
    """A run that this process may drive, with everything that it needs to start.

    `window` is the history before the run; the caller's cached window if that is still valid.
    `pins` is the snapshot with which an earlier attempt started. `notices` are undelivered: the
    oldest of those that can become due during the run.
    """

    question: StoredMessage
    options: RunOptions
    context: OracleContext
    project: Project
    settings: Mapping[str, Any]
    window: Window | CachedWindow
    started_at: float  # of the first attempt
    pins: bytes | None = None
    notices: tuple[StoredNotice, ...] = ()
    session_key: str | None = None  # None: asked in the context
    token: ApiToken | None = None  # of the request
    origin: str = "user"  # of the question
    cancel_requested: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnd:
    """The outcome of a run and its results.

    `model` answered last, `context_tokens` is the new size of the context; `decisions` and the
    mentioned symbols and files are added to it, with the `marks` of their sources. Without a model,
    only the size of the context changes.
    """

    status: RunStatus
    termination_reason: str | None = None
    finish: DoneFinish | None = None
    messages: tuple[NewMessage, ...] = ()
    error: ErrorBody | None = None
    model: str = ""
    context_tokens: int = 0
    decisions: tuple[str, ...] = ()
    mentioned_symbols: tuple[str, ...] = ()
    mentioned_files: tuple[str, ...] = ()
    marks: Marks = NO_MARKS


class StepOutput(msgspec.Struct, frozen=True, omit_defaults=True):
    """The stored result of a finished step: its writes to the blackboard, chunks and `_error`."""

    writes: Mapping[str, Any] = {}
    chunks: tuple[StreamChunk, ...] = ()
    error: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class StepRow:
    """A step of a run, for inspection; `output` is None once it has been deleted."""

    key: str
    leaf: str
    effect: str
    attempt: int
    request_hash: str
    status: str
    started_at: float
    ended_at: float | None
    output: StepOutput | None


@dataclass(frozen=True, slots=True)
class RunOverview:
    """A run in a list: its project, the beginning of its question, and the tokens it has used."""

    run: RunNode
    project_id: str
    question: str
    tokens: int
