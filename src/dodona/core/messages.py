"""What is said: the messages of a conversation as a model sees them, and its calls of tools.

    Message = SystemText | UserText | AssistantText | ToolResult

Messages do not change. Each keeps what a wire made of it, so that the history of a run is
encoded once, not once per request.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, TypeAlias


def _encodings() -> dict[str, bytes]:
    return {}


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as it is offered to a model; `parameters` is a JSON Schema of an object."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    encoded: dict[str, bytes] = field(default_factory=_encodings, compare=False, repr=False)
    strict: bool | None = None  # must arguments follow the schema? where a provider can see to it


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call as the model wrote it: `arguments` is JSON text, and may be malformed."""

    id: str
    name: str
    arguments: str = "{}"


@dataclass(frozen=True, slots=True)
class RawMessage:
    """A provider's own JSON of an assistant message; it goes back verbatim to that provider.

    Signatures of thinking are only valid where they were made, and only unchanged.
    """

    provider: str
    body: bytes


@dataclass(frozen=True, slots=True)
class SystemText:
    """Instructions. Before the first other message they are the system prompt."""

    text: str
    encoded: dict[str, bytes] = field(default_factory=_encodings, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class UserText:
    text: str
    encoded: dict[str, bytes] = field(default_factory=_encodings, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class AssistantText:
    """What a model answered: text, thinking, calls, in the provider's own JSON when known."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    thinking: str = ""
    raw: RawMessage | None = None
    encoded: dict[str, bytes] = field(default_factory=_encodings, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a call returned, or why it did not."""

    call_id: str
    name: str
    text: str
    failed: bool = False
    encoded: dict[str, bytes] = field(default_factory=_encodings, compare=False, repr=False)


Message: TypeAlias = SystemText | UserText | AssistantText | ToolResult


class Origin(Enum):
    """USER typed it · PROJECT keeps it (notes, threads, code) · MODEL wrote it · the rest is from
    outside: WEB pages, and PEERs, which are other agents, servers and senders.
    """

    USER = "user"
    PROJECT = "project"
    MODEL = "model"
    WEB = "web"
    PEER = "peer"

    @property
    def is_untrusted(self) -> bool:
        """May a stranger have written it, to be read by an agent?"""
        return self in _UNTRUSTED


_UNTRUSTED: Final = frozenset({Origin.WEB, Origin.PEER})
