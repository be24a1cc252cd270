"""The port of rules: what an operator or user wants to happen when something happens.

Rules decide, and do nothing themselves: what they want done is told as actions, and whoever drives
the run does it. So a rule costs microseconds, and cannot harm the host.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from dodona.core.domain.budgets import Operation
from dodona.core.events import Event, Severity

# Hook points by their names in rules; each is an event.
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
    """Tell the agent, as the tool notify_self does."""

    message: str
    priority: str = "normal"  # low, normal, high, critical
    category: str = "rule"


@dataclass(frozen=True, slots=True)
class LogMessage:
    message: str
    level: str = "info"


@dataclass(frozen=True, slots=True)
class SetState:
    """Keep a value for the rule's pack, for this user, beyond the run."""

    key: str
    value: Any


@dataclass(frozen=True, slots=True)
class EmitEvent:
    type: str
    severity: Severity
    payload: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Deny:
    """Refuse the call of a tool; the model sees the reason."""

    reason: str


@dataclass(frozen=True, slots=True)
class RequireApproval:
    """Ask a person before the call is made; without an answer in time it is refused."""

    reason: str
    timeout_seconds: float | None = None  # None is the configured one


@dataclass(frozen=True, slots=True)
class RunTree:
    """Let a tree decide: its text, and what it may take. It knows the context as `context`.

    It sets `notify`, `deny` or `state` on its blackboard to have that done.
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
    """A rule that fires, and what it wants; `pack` is whose state it may change."""

    rule: str
    pack: str
    action: Action


@dataclass(frozen=True, slots=True)
class RuleOverrides:
    """What a user has decided about rules: turned on or off, and parameters by rule."""

    enabled: frozenset[str] = frozenset()
    disabled: frozenset[str] = frozenset()
    parameters: Mapping[str, Mapping[str, Any]] = field(
        default_factory=dict[str, Mapping[str, Any]]
    )


class RuleEngine(Protocol):
    """The rules there are now. Nothing here blocks; a rule that goes wrong is logged."""

    def listens_to(self, event_type: str) -> bool:
        """Would any rule look at such an event? Asked before a context is made."""
        ...

    def evaluate(
        self,
        event: Event,
        context: Mapping[str, Any],
        *,
        overrides: RuleOverrides,
        state: Mapping[str, Mapping[str, Any]],
        fired_rules: frozenset[str] = frozenset(),
    ) -> Sequence[RuleAction]:
        """The rules that fire, the most urgent first.

        `context` has turn, history, user, project, event and result; `state` is by pack. `fired`
        are the rules that fired before in this run: one that fires once a run is not asked again.
        """
        ...

    def list(self) -> Sequence[Mapping[str, Any]]:
        """Each with id, pack, description, trigger, condition, action, priority, enabled (by
        default), core, once, parameters {name: {type, default, min, max, description}} and file.
        """
        ...

    def problems(self) -> Sequence[str]:
        """What is wrong with files that were not taken."""
        ...

    def check_parameters(self, rule_id: str, parameters: Mapping[str, Any]) -> None:
        """Raise NotFound for a rule that is not there, BadRequest for wrong parameters."""
        ...


class PackState(Protocol):
    """What packs of rules keep for each user; also what the user has decided about them."""

    async def all(self, user_id: str) -> Mapping[str, Mapping[str, Any]]:
        """Values by pack and key."""
        ...

    async def put(self, user_id: str, pack: str, values: Mapping[str, Any]) -> None:
        """Keep these; None forgets a key."""
        ...

    def put_operation(self, user_id: str, pack: str, values: Mapping[str, Any]) -> Operation[None]:
        """The same, in whatever transaction it is done.

        What is wrong with the values is told at once. In the transaction nothing is refused, for
        others ride with it: keys that would be too many are not kept, and a warning is logged.
        """
        ...
