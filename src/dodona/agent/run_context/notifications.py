"""What a run makes of its events: notices that wait for their point, and what rules want done."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dodona.agent.run_context.overrides import UserOverrides
from dodona.core.domain.notices import Inbox, Subscribers
from dodona.core.domain.rules import RuleAction, RuleEngine
from dodona.core.events import Event


@dataclass(slots=True)
class RunNotifications:
    """An agent's ears. `fired` are rules that fired in this run, `trees` those that wait to run.

    `late` is what was heard when nothing could be told any more: it is for the next session.
    """

    inbox: Inbox
    rules: RuleEngine
    overrides: UserOverrides
    fired_rules: set[str] = field(default_factory=set[str])
    pending_trees: list[RuleAction] = field(default_factory=list[RuleAction])
    late_events: list[Event] = field(default_factory=list[Event])
    has_ended: bool = False
    call_count: int = 0
    failures_by_tool: dict[str, int] = field(
        default_factory=dict[str, int]
    )  # turns with some, by tool

    @classmethod
    def create(
        cls, subscribers: Subscribers, rules: RuleEngine, overrides: UserOverrides
    ) -> RunNotifications:
        return cls(
            subscribers.create_inbox(overrides.disabled_subscribers, overrides.enabled_subscribers),
            rules,
            overrides,
        )

    def record_turn(self, calls: Iterable[tuple[str, bool]]) -> None:
        """The calls of a turn, each with whether it failed.

        However often a tool fails in one turn, that is one failure: the rest is told at once.
        """
        made = list(calls)
        self.call_count += len(made)
        for tool in {tool for tool, failed in made if failed}:
            self.failures_by_tool[tool] = self.failures_by_tool.get(tool, 0) + 1

    def as_json(self) -> dict[str, Any]:
        """What a step that tells notices leaves, so that a resumed run goes on from there."""
        return {"waiting": list(self.inbox.as_json()), "fired": sorted(self.fired_rules)}

    def restore(self, record: Mapping[str, Any]) -> None:
        if record:
            self.inbox.restore(record["waiting"])
            self.fired_rules = set(record["fired"])
