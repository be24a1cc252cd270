"""The port of tools: what an agent can do, each by a name and a schema."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

from dodona.core.events import Event
from dodona.core.messages import Origin, ToolCall, ToolResult, ToolSpec
from dodona.core.ports.journal import Effect


class ToolCategory(Enum):
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


@dataclass(frozen=True, slots=True)
class SourceReference:
    """Where something that a tool returned is to be found; `lines` as in 3–9.

    `path` is what an answer cites: a note's or file's path, `thread:12#34` for an entry, a URL.
    `version` is that of the note or file when it was read: by it a change is noticed.
    """

    path: str
    title: str = ""
    lines: str = ""
    excerpt: str = ""
    kind: SourceKind = SourceKind.NOTE
    version: str = ""

    def as_json(self) -> dict[str, str]:
        return {
            "path": self.path,
            "title": self.title,
            "lines": self.lines,
            "excerpt": self.excerpt,
            "kind": self.kind.value,
            "version": self.version,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, str]) -> SourceReference:
        """What `as_json` made, also before there were kinds and versions."""
        return cls(
            data["path"],
            data.get("title", ""),
            data.get("lines", ""),
            data.get("excerpt", ""),
            SourceKind(data.get("kind", "note")),
            data.get("version", ""),
        )


@dataclass(frozen=True, slots=True)
class ToolContext:
    """For whom a call is made, and by which agent.

    `key` is the same when it is made again after a crash. `allowed_urls` are the only addresses
    that may be fetched: those that the user typed or a search returned; None allows any.
    """

    user_id: str
    project_id: str
    key: str
    agent: str = "oracle"
    allowed_urls: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """What goes back to the model, and what the user may want to look at.

    `entries` is how many things a list or a log holds, `scores` are those of a search's hits, the
    best first: by them it is decided whether somebody should sum the result up. `events` are heard
    by the run.
    """

    text: str
    sources: tuple[SourceReference, ...] = ()
    entry_count: int = 0
    scores: tuple[float, ...] = ()
    events: tuple[Event, ...] = ()


class Tool(Protocol):
    """One capability. It raises ToolFailed when it cannot, ToolRetry when it was asked wrongly."""

    @property
    def spec(self) -> ToolSpec: ...

    @property
    def category(self) -> ToolCategory: ...

    @property
    def agent_scope(self) -> tuple[str, ...]:
        """The agents that may use it."""
        ...

    @property
    def effect(self) -> Effect: ...

    @property
    def origin(self) -> Origin:
        """Who wrote what it returns."""
        ...

    @property
    def timeout_seconds(self) -> float: ...

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        """Do it. The arguments fit the schema of `spec`."""
        ...


class Toolbox(Protocol):
    """The tools there are."""

    def specs_for(self, agent: str) -> tuple[ToolSpec, ...]:
        """Those of an agent, in an order that does not change."""
        ...

    def find(self, name: str) -> Tool | None: ...


@dataclass(frozen=True, slots=True)
class ToolCallResult:
    """The result of a call, what it was called with, and how long it took."""

    result: ToolResult
    duration_ms: int
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])
    sources: tuple[SourceReference, ...] = ()
    entry_count: int = 0
    scores: tuple[float, ...] = ()
    events: tuple[Event, ...] = ()
    timed_out: bool = False


class CallTool(Protocol):
    """Calls a tool as an agent's model asked. Raises nothing but cancellation."""

    async def __call__(
        self, call: ToolCall, *, agent: str, context: ToolContext
    ) -> ToolCallResult: ...
