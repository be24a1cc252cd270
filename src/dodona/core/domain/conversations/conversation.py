"""What is kept of a conversation: a tree whose nodes are runs, each with its messages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from dodona.core.domain.agents import DEFAULT_AGENT, QueueMode
from dodona.core.domain.conversations.contexts import DEFAULT_TOKEN_BUDGET, OracleContext
from dodona.core.domain.notices import StoredNotice
from dodona.core.domain.projects import Project
from dodona.core.messages import RawMessage

MAX_QUEUED: Final = 1_000  # messages that may wait in a lane, whoever sends them


class RunStatus(Enum):
    """QUEUED waits for its lane, WAITING holds it while a person is asked."""

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
    """A message to keep. `metadata` holds tool calls with their results, and the like."""

    role: str
    content: str
    token_count: int
    metadata: Mapping[str, Any] | None = None
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
    error: Mapping[str, Any] | None
    created_at: float
    started_at: float | None
    ended_at: float | None
    cancel_requested_at: float | None


@dataclass(frozen=True, slots=True)
class Summary:
    """Stands for a run and all before it."""

    run_id: int
    content: str
    token_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSummary:
    """A text that is to stand for a run and all before it, and what was found on the way.

    `head_id` is the run up to which it was looked, `context_tokens` what a context holds then that
    still is there. `insights` are by run.
    """

    run_id: int
    content: str
    token_count: int
    model: str | None = None  # that wrote it
    decisions: tuple[str, ...] = ()
    mentioned_symbols: tuple[str, ...] = ()
    mentioned_files: tuple[str, ...] = ()
    insights: Mapping[int, str] = field(default_factory=dict[int, str])
    head_id: int | None = None
    context_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Window:
    """The newest runs that fit, oldest first, after the summary of what came before them."""

    head_id: int | None
    messages: tuple[StoredMessage, ...]
    summary: Summary | None = None
    is_truncated: bool = False  # older runs exist that are neither here nor summarised

    @property
    def tokens(self) -> int:
        total = sum(message.token_count for message in self.messages)
        return total + (self.summary.token_count if self.summary else 0)


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to drive a run. It holds until a later attempt is claimed."""

    run_id: int
    conversation_id: int
    attempt: int
    owner: str
    parent_id: int | None = None
    cancel_requested: bool = False
    started_at: float = 0.0

    @property
    def is_resumed(self) -> bool:
        return self.attempt > 1


@dataclass(frozen=True, slots=True)
class LaneBusy:
    """Why a lane was not to be had: the run that holds it, and who drives it."""

    run_id: int
    status: RunStatus
    owner: str | None
    holder_description: str  # in words, for people


@dataclass(frozen=True, slots=True)
class CachedWindow:
    """A window that whoever asks has read before: it still holds if nothing has moved since.

    `kept` is what the asker made of it; only the asker looks at it.
    """

    head_id: int
    updated_at: float  # of the conversation
    payload: Any = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """A question to take in, in a session, or without one in the context of a user's project.

    `parent` is a run to go on from; without one it is the head, once it is the question's turn.
    `anew` closes the context first, so that the question begins another conversation. `queueing`
    is what becomes of it while another is answered; past `queue_limit` it is refused.
    """

    user_id: str
    project_id: str
    message: NewMessage
    parent_id: int | None = None
    new_conversation: bool = False
    origin: str = "user"
    agent_id: str = DEFAULT_AGENT
    session_key: str | None = None
    queueing: QueueMode = QueueMode.QUEUE
    queue_limit: int = MAX_QUEUED
    token_budget: int = DEFAULT_TOKEN_BUDGET  # of a context that begins, and of a session
    cached_window: CachedWindow | None = None


@dataclass(frozen=True, slots=True)
class RunInputs:
    """All that a run needs to begin, as it was when the run was claimed.

    `window` is what came before the run, without the run itself; None when the asker knows it.
    `pins` is what an earlier attempt began with, if there was one. `notices` wait to be told: the
    oldest of those that can become due while the run goes on.
    """

    question: StoredMessage
    context: OracleContext
    project: Project
    settings: Mapping[str, Any]
    window: Window | None
    updated_at: float  # of the conversation, when the window was read
    pins: bytes | None = None
    cached_window: CachedWindow | None = None  # instead of the window
    notices: tuple[StoredNotice, ...] = ()
    session_key: str | None = None  # None: it was asked in the context
    origin: str = "user"  # of the question


@dataclass(frozen=True, slots=True)
class ClaimedRun:
    """A run that is this process's to drive."""

    claim: Claim
    inputs: RunInputs


@dataclass(frozen=True, slots=True)
class SubmitReceipt:
    """A question that was taken in. It waits for its lane when it is not driven.

    `interrupted` are the runs that shall end for it.
    """

    run_id: int
    conversation_id: int
    claimed: ClaimedRun | None
    interrupted_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnd:
    """How a run ends, and what it leaves.

    `model` answered last, `context_tokens` is what the context holds from now on, `decisions` and
    what is mentioned are new to it; without a model all of it stays as it was.
    """

    status: RunStatus
    messages: tuple[NewMessage, ...] = ()
    error: Mapping[str, Any] | None = None
    model: str = ""
    context_tokens: int = 0
    decisions: tuple[str, ...] = ()
    mentioned_symbols: tuple[str, ...] = ()
    mentioned_files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EndReceipt:
    """`head_moved` is False when somebody moved the head while the run went on."""

    head_moved: bool
    updated_at: float  # of the conversation


@dataclass(frozen=True, slots=True)
class StepRow:
    """A step of a run, for people to look at; `left` is what it left, while that is kept."""

    key: str
    leaf: str
    effect: str
    attempt: int
    request_hash: str
    status: str
    started_at: float
    ended_at: float | None
    output: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class RunOverview:
    """A run in a list: where it belongs and how it began."""

    run: RunNode
    project_id: str
    question: str
