"""Notices that wait for their moment: a time, a call of a tool, an event like this one."""

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
    """A stored notice whose moment has not come."""

    id: int
    event: Event
    due: Deferral
    condition: Condition | None = field(default=None, compare=False)

    def is_due_at(self, now: float) -> bool:
        return self.due.until is DeferUntil.TIME and (self.due.at is None or now >= self.due.at)

    def is_due_with(self, event: Event, values: Mapping[str, Any]) -> bool:
        """Is this the event that it waits for?"""
        if self.due.until is DeferUntil.TOOL:
            return (
                event.type.startswith(_TOOL_CALL_PREFIX)
                and event.payload.get("tool") == self.due.tool
            )
        if self.condition is None:
            return False
        try:
            return self.condition.holds(values)
        except ConditionFailed:  # most events have not what it asks for
            return False

    def as_json(self) -> dict[str, Any]:
        return {"id": self.id, "event": self.event.as_json(), "due": self.due.as_json()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ScheduledNotice:
        return _build_scheduled(
            data["id"], Event.from_json(data["event"]), Deferral.from_json(data["due"])
        )


def scheduled_from(notice: StoredNotice) -> ScheduledNotice:
    return _build_scheduled(notice.id, notice.event, notice.due)


def is_due_at_once(notice: StoredNotice) -> bool:
    return notice.due.until is DeferUntil.SESSION


def notice_ids(notices: Iterable[ScheduledNotice]) -> set[int]:
    return {each.id for each in notices}


def _build_scheduled(id_: int, event: Event, due: Deferral) -> ScheduledNotice:
    if due.until is not DeferUntil.CONDITION:
        return ScheduledNotice(id_, event, due)
    try:
        return ScheduledNotice(
            id_, event, due, compile_condition(due.condition, names=EVENT_VARIABLES)
        )
    except ConfigError as error:
        # It was checked when it was made: this is another version's. Better told than kept.
        _log.warning("notice %d waits for what is no condition, and is told now: %s", id_, error)
        return ScheduledNotice(id_, event, Deferral(DeferUntil.TIME))
