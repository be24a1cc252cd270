"""The port of tools: functions that an agent can call, each with a name and a schema."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import Any, Protocol

import msgspec

from dodona.core.domain.notices import StoredNotice
from dodona.core.domain.trust import NO_MARKS, Marks
from dodona.core.events import Event
from dodona.core.messages import Origin, ToolCall, ToolResult, ToolSpec
from dodona.core.ports.journal import Effect


class ToolCategory(StrEnum):
    """The categories of built-in tools. A category is a name: another tool may have its own."""

    VAULT = "vault"
    THREAD = "thread"
    CODE = "code"
    WEB = "web"
    META = "meta"


class SourceKind(Enum):
    NOTE = "note"
    CODE = "code"
    THREAD = "thread"
    WEB = "web"


class SourceReference(msgspec.Struct, frozen=True):
    """Where a result of a tool was found; `lines` is like 3–9.

    `path` is the citation in an answer: the path of a note or file, `thread:12#34` for an entry, or
    a URL. `version` is that of the note or file when it was read, to detect later changes.
    """

    path: str
    title: str = ""
    lines: str = ""
    excerpt: str = ""
    kind: SourceKind = SourceKind.NOTE
    version: str = ""


class ShownLines(msgspec.Struct, frozen=True):
    """Lines of a note that a tool has shown to the model; equal versions mean equal text."""

    version: str
    first: int
    last: int


def _ignore(_: str) -> None:
    """Do nothing: the run has no readers."""


@dataclass(frozen=True, slots=True)
class ToolContext:
    """The user, project and agent for which a tool is called.

    `key` stays the same when the call is repeated after a crash. Only `allowed_urls` may be
    fetched: URLs that the user typed or a search returned; None allows any. What the tool stores
    gets `marks`: the untrusted sources that the caller has read. `shown` are the lines of notes
    that it sees: those of earlier results, in this run and in the history. `report` shows progress,
    and `emit` sends text, to the readers of the run.
    """

    user_id: str
    project_id: str
    key: str
    agent: str = "oracle"
    allowed_urls: frozenset[str] | None = None
    marks: Marks = NO_MARKS
    shown: frozenset[ShownLines] = frozenset()
    run_id: int = 0
    report: Callable[[str], None] = _ignore
    emit: Callable[[str], None] = _ignore


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """The result of a tool: text for the model, and sources for the user.

    `entry_count` is the number of items in a list or log, `scores` are those of search hits, best
    first: they decide whether the result is summarised. `events` are emitted in the run; `notices`
    are delivered in it when they are due. `marks` are the untrusted sources of any part of the
    text, in addition to the tool's own origin. `shown` are the lines of notes that the model knows
    from the whole text. `found_urls` are URLs that a search returned: they may be fetched.
    """

    text: str
    sources: tuple[SourceReference, ...] = ()
    entry_count: int = 0
    scores: tuple[float, ...] = ()
    events: tuple[Event, ...] = ()
    notices: tuple[StoredNotice, ...] = ()
    marks: Marks = NO_MARKS
    shown: tuple[ShownLines, ...] = ()
    found_urls: tuple[str, ...] = ()


class Tool(Protocol):
    """One capability. Raises ToolFailed if it fails, ToolRetry if the call was invalid."""

    @property
    def spec(self) -> ToolSpec: ...

    @property
    def category(self) -> str:
        """A `ToolCategory`, or a name of the tool's own."""
        ...

    @property
    def agent_scope(self) -> tuple[str, ...]:
        """The agents that may use it."""
        ...

    @property
    def effect(self) -> Effect: ...

    @property
    def origin(self) -> Origin:
        """Who wrote the text that it returns."""
        ...

    @property
    def writes(self) -> bool:
        """Whether a call changes something that outlives the run."""
        ...

    @property
    def keeps_versions(self) -> bool:
        """Whether everything that a call changes can be restored."""
        ...

    @property
    def sends(self) -> bool:
        """Whether the arguments of a call leave this machine."""
        ...

    @property
    def reads_private(self) -> bool:
        """Whether it returns text that must not leave this machine, such as notes."""
        ...

    @property
    def timeout_seconds(self) -> float: ...

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        """Run the tool. The arguments have been validated against `spec`."""
        ...


class Toolbox(Protocol):
    """The registered tools."""

    def specs_for(self, agent: str) -> tuple[ToolSpec, ...]:
        """Return the tools of an agent, in a stable order."""
        ...

    def categories(self) -> frozenset[str]:
        """Return the categories that at least one tool has."""
        ...

    def find(self, name: str) -> Tool | None: ...


@dataclass(frozen=True, slots=True)
class ToolCallResult:
    """The result of a tool call, its arguments and its duration; `output` is empty on failure."""

    result: ToolResult
    duration_ms: int
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])
    output: ToolOutput = ToolOutput("")
    timed_out: bool = False


class CallTool(Protocol):
    """Runs a tool call of an agent's model. Raises nothing except cancellation."""

    async def __call__(
        self, call: ToolCall, *, agent: str, context: ToolContext
    ) -> ToolCallResult: ...
