"""Notices and rule actions of a run, collected from its events."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from dodona.agent.run_context.overrides import UserOverrides
from dodona.core.domain.rules import RuleAction
from dodona.core.events import Event
from dodona.notify import Inbox
from dodona.notify.inbox import InboxState
from dodona.rules import RuleBook


class NotificationsState(msgspec.Struct):
    """The undelivered notices and the fired rules of a run, in `inbox`."""

    inbox: InboxState
    fired_rules: list[str]


@dataclass(slots=True)
class RunNotifications:
    """The inbox and rule state of one agent in a run.

    `pending_rule_trees` are rule trees that wait to run. `events_after_end` arrived after the last
    turn and are delivered in the next session.
    """

    inbox: Inbox
    rules: RuleBook
    overrides: UserOverrides
    fired_rules: set[str] = field(default_factory=set[str])
    pending_rule_trees: list[RuleAction] = field(default_factory=list[RuleAction])
    events_after_end: list[Event] = field(default_factory=list[Event])
    has_ended: bool = False
    call_count: int = 0
    failures_by_tool: dict[str, int] = field(default_factory=dict[str, int])  # failed turns

    def record_turn(self, calls: Iterable[tuple[str, bool]]) -> None:
        """Count the calls of a turn; each is a tool and whether it failed.

        Several failures of a tool in one turn count once, since the model sees them together.
        """
        turn_calls = list(calls)
        self.call_count += len(turn_calls)
        for tool in {tool for tool, failed in turn_calls if failed}:
            self.failures_by_tool[tool] = self.failures_by_tool.get(tool, 0) + 1

    def state(self) -> NotificationsState:
        """Return the state that a step stores after it delivers notices, for a resumed run."""
        return NotificationsState(self.inbox.state(), sorted(self.fired_rules))

    def restore(self, state: NotificationsState) -> None:
        self.inbox.restore(state.inbox)
        self.fired_rules = set(state.fired_rules)
