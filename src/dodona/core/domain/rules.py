"""The port of rules: what an operator or a user wants to happen on an event.

Rules only decide: they return actions, and the driver of the run carries them out. So a rule costs
microseconds and cannot harm the host.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from dodona.core.domain.trust import NO_MARKS, Marks
from dodona.core.events import Severity

# Hook points by their names in rules; each stands for an event type.
HOOKS: Mapping[str, str] = {
    "on_query_start": "query.start",
    "on_turn_start": "agent.turn.start",
    "on_turn_end": "agent.turn.end",
    "on_tool_call": "tool.call.pending",
    "on_tool_complete": "tool.call.success",
    "on_tool_failure": "tool.call.failure",
    "on_session_end": "session.end",
}


@dataclass(frozen=True, slots=True)
class NotifySelf:
    """Send the agent a notice, as the tool notify_self does."""

    message: str
    priority: str = "normal"  # low, normal, high, critical
    category: str = "rule"


@dataclass(frozen=True, slots=True)
class LogMessage:
    message: str
    level: str = "info"


@dataclass(frozen=True, slots=True)
class SetState:
    """Store a value for the rule's pack and this user, beyond the run."""

    key: str
    value: Any


@dataclass(frozen=True, slots=True)
class EmitEvent:
    type: str
    severity: Severity
    payload: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Deny:
    """Refuse a tool call; the model sees the reason."""

    reason: str

    @classmethod
    def for_failed_rule(cls, rule: str) -> Deny:
        """Return the denial of a call about which a rule failed to decide."""
        return cls(f"rule {rule} could not be evaluated; see the server log.")


@dataclass(frozen=True, slots=True)
class RequireApproval:
    """Ask a person before the call is made; without an answer in time it is denied."""

    reason: str
    timeout_seconds: float | None = None  # None is the configured default


@dataclass(frozen=True, slots=True)
class RunTree:
    """Run a tree that decides: its source and its limits. The tree sees the context as `context`.

    It requests an action by setting `notify`, `deny` or `state` on its blackboard.
    """

    name: str
    source: str
    file: str
    seconds: float
    max_ticks: int
    has_model: bool
    context: Mapping[str, Any]


Action: TypeAlias = (
    NotifySelf | LogMessage | SetState | EmitEvent | Deny | RequireApproval | RunTree
)


@dataclass(frozen=True, slots=True)
class RuleAction:
    """An action of a rule that fired; `pack` is the pack whose state it may change.

    `marks` are the untrusted sources of the values that the rule has read.
    """

    rule: str
    pack: str
    action: Action
    marks: Marks = NO_MARKS


@dataclass(frozen=True, slots=True)
class RuleOverrides:
    """A user's choices about rules: enabled, disabled, and parameters by rule."""

    enabled: frozenset[str] = frozenset()
    disabled: frozenset[str] = frozenset()
    parameters: Mapping[str, Mapping[str, Any]] = field(
        default_factory=dict[str, Mapping[str, Any]]
    )
