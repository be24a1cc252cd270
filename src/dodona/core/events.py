"""What happened, told to whoever listens. Types are one dotted set."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from time import time
from typing import Any


class Severity(Enum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
    CRITICAL = "critical"


QUERY_START = "query.start"
SESSION_RESUMED = "session.resumed"
SESSION_END = "session.end"
AGENT_TURN_START = "agent.turn.start"
BUDGET_ITERATION_WARNING = "budget.iteration.warning"
BUDGET_ITERATION_EXCEEDED = "budget.iteration.exceeded"
BUDGET_TOKEN_WARNING = "budget.token.warning"  # noqa: S105 - not a secret
BUDGET_TOKEN_EXCEEDED = "budget.token.exceeded"  # noqa: S105 - not a secret
BUDGET_TIMEOUT_EXCEEDED = "budget.timeout.exceeded"
CONTEXT_APPROACHING_LIMIT = "context.approaching_limit"
TOOL_CALL_SUCCESS = "tool.call.success"
TOOL_CALL_FAILURE = "tool.call.failure"
AGENT_LOOP_DETECTED = "agent.loop.detected"

TREE_RELOADED = "tree.reload.done"
TREE_RELOAD_FAILED = "tree.reload.failed"
TREE_STUCK = "tree.stuck"
TREE_ESCALATED = "tree.stuck.escalated"
TREE_UNRESPONSIVE = "tree.unresponsive"
TREE_CONFLICT = "tree.conflict"


@dataclass(frozen=True, slots=True)
class Event:
    type: str
    source: str
    severity: Severity = Severity.INFO
    payload: Mapping[str, Any] = field(default_factory=dict[str, Any])
    timestamp: float = field(default_factory=time)


Emit = Callable[[Event], None]
