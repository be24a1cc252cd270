"""The messages of a conversation as a model sees them, including tool calls and results.

    Message = SystemText | UserText | ContextText | AssistantText | ToolResult

Messages are immutable. Each caches its encoding for each wire format, so that the history of a run
is encoded once, not once per request.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, TypeAlias

import msgspec


def _encodings() -> dict[str, bytes]:
    return {}


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as offered to a model; `parameters` is the JSON Schema of an object."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    encoded: dict[str, bytes] = field(default_factory=_encodings, compare=False, repr=False)
    strict: bool | None = None  # whether arguments must follow the schema, if the provider can


class ToolCall(msgspec.Struct, frozen=True):
    """A call as the model wrote it: `arguments` is JSON text, and may be malformed."""

    id: str
    name: str
    arguments: str = "{}"


@dataclass(frozen=True, slots=True)
class RawMessage:
    """A provider's own JSON of an assistant message, sent back verbatim to that provider.

    Signatures of thinking are valid only for the provider that made them, and only unchanged.
    """

    provider: str
    body: bytes


@dataclass(frozen=True, slots=True)
class SystemText:
    """Instructions. Before the first message of another kind, they are the system prompt."""

    text: str
    encoded: dict[str, bytes] = field(default_factory=_encodings, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class UserText:
    text: str
    encoded: dict[str, bytes] = field(default_factory=_encodings, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class ContextText:
    """Text that Dodona adds: summaries, lists of notes, notices.

    It contains titles and other text of third parties, so it is never sent as a system message. It
    is no text of the user either.
    """

    text: str
    encoded: dict[str, bytes] = field(default_factory=_encodings, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class AssistantText:
    """A model's answer: text, thinking and tool calls; `raw` is the provider's JSON, if any."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    thinking: str = ""
    raw: RawMessage | None = None
    encoded: dict[str, bytes] = field(default_factory=_encodings, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of a tool call, or the reason why it failed."""

    call_id: str
    name: str
    text: str
    failed: bool = False
    encoded: dict[str, bytes] = field(default_factory=_encodings, compare=False, repr=False)


Message: TypeAlias = SystemText | UserText | ContextText | AssistantText | ToolResult


class Origin(Enum):
    """Who wrote a text. USER typed it, OPERATOR configured it, PROJECT stores it: notes and code.

    The text of the others is untrusted: PEERs are other senders, agents and authors, WEB is pages
    and search results, PLUGIN and MCP are what plugins and MCP servers return. What a MODEL writes
    is as trustworthy as what it has read.
    """

    USER = "user"
    OPERATOR = "operator"
    PROJECT = "project"
    PEER = "peer"
    WEB = "web"
    PLUGIN = "plugin"
    MCP = "mcp"
    MODEL = "model"

    @property
    def is_untrusted(self) -> bool:
        """Whether an attacker may have written it."""
        return self in _UNTRUSTED


_UNTRUSTED: Final = frozenset({Origin.PEER, Origin.WEB, Origin.PLUGIN, Origin.MCP})
