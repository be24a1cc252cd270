"""Agents: who answers. Each has a name, and may have a soul, a prompt and tools of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

DEFAULT_AGENT: Final = "oracle"


class QueueMode(Enum):
    """What becomes of messages of a session that come while one is answered."""

    QUEUE = "queue"  # one after the other
    COLLECT = "collect"  # all that wait are answered at once
    INTERRUPT = "interrupt"  # what runs is cancelled; the newest is answered


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentDef:
    """An agent as runs see it; which models answer for it, only `Models` knows.

    `tools` are the names of those that it may use; None allows all. `soul` is a text that comes
    before all others, `system_prompt` stands in the place of the shipped prompt.
    """

    id: str
    tools: frozenset[str] | None = None
    soul: str = ""
    system_prompt: str = ""
    queueing: QueueMode = QueueMode.QUEUE
    queue_limit: int = 20

    def may_use(self, tool: str) -> bool:
        return self.tools is None or tool in self.tools


@dataclass(frozen=True, slots=True)
class Agents:
    """All that there are now. Another object when one of them has changed."""

    default: AgentDef = field(default_factory=lambda: AgentDef(id=DEFAULT_AGENT))
    others: Mapping[str, AgentDef] = field(default_factory=dict[str, AgentDef])

    def get(self, id_: str) -> AgentDef | None:
        return self.default if id_ == self.default.id else self.others.get(id_)

    def ids(self) -> tuple[str, ...]:
        return (self.default.id, *self.others)
