"""Deferred notices that wait for a time, a tool call or an event."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from msgspec.structs import replace

from dodona.conditions import Condition, ConditionFailed, compile_condition
from dodona.core.domain.notices import EVENT_VARIABLES, Deferral, DeferUntil, StoredNotice
from dodona.core.errors import ConfigError
from dodona.core.events import Event

_TOOL_CALL_PREFIX: Final = "tool.call."

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ScheduledNotice:
    """A stored notice that is not due yet."""

    notice: StoredNotice
    condition: Condition | None = field(default=None, compare=False)

    def is_due_at(self, now: float) -> bool:
        due = self.notice.due
        return due.until is DeferUntil.TIME and (due.at is None or now >= due.at)

    def is_due_with(self, event: Event, values: Mapping[str, Any]) -> bool:
        """Return whether this is the event that the notice waits for."""
        due = self.notice.due
        if due.until is DeferUntil.TOOL:
            return (
                event.type.startswith(_TOOL_CALL_PREFIX) and event.payload.get("tool") == due.tool
            )
        if self.condition is None:
            return False
        try:
            return self.condition.holds(values)
        except ConditionFailed:  # most events lack the fields that the condition uses
            return False


def schedule(notice: StoredNotice) -> ScheduledNotice:
    """Build a scheduled notice; its condition is compiled once."""
    due = notice.due
    if due.until is not DeferUntil.CONDITION:
        return ScheduledNotice(notice)
    try:
        return ScheduledNotice(notice, compile_condition(due.condition, names=EVENT_VARIABLES))
    except ConfigError as error:
        # The condition was valid in another version. Delivering early beats never delivering.
        text = "notice %d has an invalid condition and is delivered now: %s"
        _log.warning(text, notice.id, error)
        return ScheduledNotice(replace(notice, due=Deferral(DeferUntil.TIME)))
