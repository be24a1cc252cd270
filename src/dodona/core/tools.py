"""The port of tools: what an agent can do, each by a name and a schema."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

from dodona.core.messages import ToolCall, ToolResult, ToolSpec
from dodona.core.ports import Effect


class Category(Enum):
    VAULT = "vault"
    THREAD = "thread"
    CODE = "code"
    WEB = "web"
    META = "meta"


@dataclass(frozen=True, slots=True)
class Source:
    """Where something that a tool returned is to be found; `lines` as in 3–9."""

    path: str
    title: str = ""
    lines: str = ""
    excerpt: str = ""


@dataclass(frozen=True, slots=True)
class ToolContext:
    """For whom a call is made. `key` is the same when it is made again after a crash."""

    user_id: str
    project_id: str
    key: str


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """What goes back to the model, and what the user may want to look at."""

    text: str
    sources: tuple[Source, ...] = ()


class Tool(Protocol):
    """One capability. It raises ToolFailed when it cannot, ToolRetry when it was asked wrongly."""

    @property
    def spec(self) -> ToolSpec: ...

    @property
    def category(self) -> Category: ...

    @property
    def agent_scope(self) -> tuple[str, ...]:
        """The agents that may use it."""
        ...

    @property
    def effect(self) -> Effect: ...

    @property
    def timeout_seconds(self) -> float: ...

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        """Do it. The arguments fit the schema of `spec`."""
        ...


class Toolbox(Protocol):
    """The tools there are."""

    def offered(self, agent: str) -> tuple[ToolSpec, ...]:
        """Those of an agent, in an order that does not change."""
        ...

    def find(self, name: str) -> Tool | None: ...


@dataclass(frozen=True, slots=True)
class CallOutcome:
    """The result of a call, what it was called with, and how long it took."""

    result: ToolResult
    duration_ms: int
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])
    sources: tuple[Source, ...] = ()


class CallTool(Protocol):
    """Calls a tool as an agent's model asked. Raises nothing but cancellation."""

    async def __call__(
        self, call: ToolCall, *, agent: str, context: ToolContext
    ) -> CallOutcome: ...
