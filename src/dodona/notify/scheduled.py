"""Deferred notices that wait for a time, a tool call or an event."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from dodona.conditions import Condition, ConditionFailed, compile_condition
from dodona.core.domain.notices import EVENT_VARIABLES, Deferral, DeferUntil, StoredNotice
from dodona.core.errors import ConfigError
from dodona.core.events import Event

_TOOL_CALL_PREFIX: Final = "tool.call."

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ScheduledNotice:
    """A stored notice that is not due yet."""

    id: int
    event: Event
    due: Deferral
    condition: Condition | None = field(default=None, compare=False)

    def is_due_at(self, now: float) -> bool:
        return self.due.until is DeferUntil.TIME and (self.due.at is None or now >= self.due.at)

    def is_due_with(self, event: Event, values: Mapping[str, Any]) -> bool:
        """Return whether this is the event that the notice waits for."""
        if self.due.until is DeferUntil.TOOL:
            return (
                event.type.startswith(_TOOL_CALL_PREFIX)
                and event.payload.get("tool") == self.due.tool
            )
        if self.condition is None:
            return False
        try:
            return self.condition.holds(values)
        except ConditionFailed:  # most events lack the fields that the condition uses
            return False

    def as_json(self) -> dict[str, Any]:
        return {"id": self.id, "event": self.event.as_json(), "due": self.due.as_json()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ScheduledNotice:
        return _build_scheduled(
            data["id"], Event.from_json(data["event"]), Deferral.from_json(data["due"])
        )


def scheduled_from(notice: StoredNotice) -> ScheduledNotice:
    """Build a scheduled notice from a stored one."""
    return _build_scheduled(notice.id, notice.event, notice.due)


def is_due_at_once(notice: StoredNotice) -> bool:
    """Return whether the notice is due as soon as the session starts."""
    return notice.due.until is DeferUntil.SESSION


def notice_ids(notices: Iterable[ScheduledNotice]) -> set[int]:
    """Return the ids of the notices."""
    return {each.id for each in notices}


def _build_scheduled(id_: int, event: Event, due: Deferral) -> ScheduledNotice:
    if due.until is not DeferUntil.CONDITION:
        return ScheduledNotice(id_, event, due)
    try:
        return ScheduledNotice(
            id_, event, due, compile_condition(due.condition, names=EVENT_VARIABLES)
        )
    except ConfigError as error:
        # The condition was valid in another version. Delivering early beats never delivering.
        _log.warning("notice %d has an invalid condition and is delivered now: %s", id_, error)
        return ScheduledNotice(id_, event, Deferral(DeferUntil.TIME))
