"""Agents: each has a name, and may have its own soul, system prompt and tools."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

DEFAULT_AGENT: Final = "oracle"
DEFAULT_DECISION_TREE: Final = "default"


class QueueMode(Enum):
    """How a session handles messages that arrive while another is being answered."""

    QUEUE = "queue"  # answer them one after the other
    COLLECT = "collect"  # answer all queued messages together
    INTERRUPT = "interrupt"  # cancel the current run and answer the newest message


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentDef:
    """An agent as runs see it; only `Models` knows which models answer for it.

    `tools` are the names of the tools that it may use; None allows all. `soul` is a text that
    precedes all other instructions, `system_prompt` replaces the built-in prompt.
    """

    id: str
    tools: frozenset[str] | None = None
    soul: str = ""
    system_prompt: str = ""
    decision_tree: str = DEFAULT_DECISION_TREE
    queueing: QueueMode = QueueMode.QUEUE
    queue_limit: int = 20

    def may_use(self, tool: str) -> bool:
        return self.tools is None or tool in self.tools


@dataclass(frozen=True, slots=True)
class Agents:
    """All configured agents. A change of one of them creates a new object."""

    default: AgentDef = field(default_factory=lambda: AgentDef(id=DEFAULT_AGENT))
    others: Mapping[str, AgentDef] = field(default_factory=dict[str, AgentDef])

    def get(self, id_: str) -> AgentDef | None:
        return self.default if id_ == self.default.id else self.others.get(id_)

    def ids(self) -> tuple[str, ...]:
        return (self.default.id, *self.others)
