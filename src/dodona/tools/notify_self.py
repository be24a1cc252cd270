"""notify_self: an agent's note to itself, told at a point of this run, later, or in another one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from time import time
from typing import Any, Final

from dodona.conditions import compile_condition
from dodona.core.domain.notices import (
    OF_AN_EVENT,
    Deferral,
    DeferUntil,
    NewNotice,
    NoticeLog,
    deferred,
)
from dodona.core.errors import ConfigError, ToolRetry
from dodona.core.events import SELF_NOTIFY, Event, Severity
from dodona.core.messages import ToolSpec
from dodona.core.ports.journal import Effect
from dodona.core.ports.tools import Category, ToolContext, ToolOutcome
from dodona.tools.registry import ToolRegistry

LONGEST: Final = 2_000
FURTHEST: Final = 366 * 86_400.0  # seconds ahead that a note may be for

_PRIORITIES: Final = {
    "low": Severity.DEBUG,
    "normal": Severity.INFO,
    "high": Severity.WARNING,
    "critical": Severity.CRITICAL,
}
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_DELAY = re.compile(r"\+(\d{1,6})([smhd])")

SPEC: Final = ToolSpec(
    "notify_self",
    "Leave a note to yourself. It comes before your next turn; or with 'deliver_at' later: at a "
    "time, after a delay, or when a tool is called. With 'persist_cross_session' it also comes in "
    "a later conversation, if it was not told before.",
    {
        "type": "object",
        "properties": {
            "message": {
                "type": "string",
                "description": "What you should be told.",
                "minLength": 1,
                "maxLength": LONGEST,
            },
            "priority": {
                "type": "string",
                "description": "How urgent it is.",
                "enum": list(_PRIORITIES),
                "default": "normal",
            },
            "category": {
                "type": "string",
                "description": "A word for what it is about.",
                "maxLength": 40,
                "default": "note",
            },
            "deliver_at": {
                "type": "string",
                "description": "'2026-01-31T09:00:00Z', '+10m' (s, m, h, d), 'tool:NAME' (when "
                "that tool is called), 'when:EXPRESSION' (a CEL expression over `event`), or "
                "'next_session'. Without it, the next turn.",
                "maxLength": 400,
            },
            "persist_cross_session": {
                "type": "boolean",
                "description": "Keep it beyond this run, until it was told.",
                "default": False,
            },
        },
        "required": ["message"],
        "additionalProperties": False,
    },
)


def add(registry: ToolRegistry, log: NoticeLog) -> None:
    @registry.tool(SPEC, category=Category.META, effect=Effect.KEYED, timeout_seconds=15)
    async def notify_self(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        event = _event(arguments, context)
        due = _due(arguments.get("deliver_at", ""))
        if due is None:
            if not arguments["persist_cross_session"]:
                return ToolOutcome("Noted: it comes before the next turn.", events=(event,))
            due = Deferral(DeferUntil.SESSION)
        stored = await log.put(
            NewNotice(
                user_id=context.user_id,
                project_id=context.project_id,
                event=event,
                due=due,
                key=context.key,
            )
        )
        # A note for another session does not come in this one.
        heard = () if due.moment is DeferUntil.SESSION else (deferred(stored),)
        return ToolOutcome(f"Noted: it comes {_told(due)}.", events=heard)


def _event(arguments: Mapping[str, Any], context: ToolContext) -> Event:
    return Event(
        SELF_NOTIFY,
        f"agent.{context.agent}",
        _PRIORITIES[arguments["priority"]],
        {
            "message": arguments["message"],
            "priority": arguments["priority"],
            "category": arguments["category"],
            "user_id": context.user_id,
            "project_id": context.project_id,
        },
    )


def _due(text: str) -> Deferral | None:
    """When it is told; None is the next turn."""
    text = text.strip()
    if not text:
        return None
    if text == "next_session":
        return Deferral(DeferUntil.SESSION)
    kind, _, rest = text.partition(":")
    if kind == "tool" and rest.strip():
        return Deferral(DeferUntil.TOOL, tool=rest.strip())
    if kind == "when" and rest.strip():
        return _once(rest.strip())
    if (delay := _DELAY.fullmatch(text)) is not None:
        return _at(time() + int(delay[1]) * _UNITS[delay[2]], text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ToolRetry(
            f"'{text[:80]}' is no time to deliver at.",
            hint="Write '2026-01-31T09:00:00Z', '+10m', 'tool:NAME', 'when:EXPRESSION' or "
            "'next_session'.",
        ) from None
    zoned = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return _at(zoned.timestamp(), text)


def _once(condition: str) -> Deferral:
    """Checked now: the model can still mend it, and nobody could when it is looked at."""
    try:
        compile_condition(condition, names=OF_AN_EVENT)
    except ConfigError as error:
        raise ToolRetry(f"'{condition[:80]}' is no condition: {error.message}") from None
    return Deferral(DeferUntil.CONDITION, condition=condition)


def _at(moment: float, text: str) -> Deferral:
    if not 0 <= moment <= time() + FURTHEST:
        raise ToolRetry(f"'{text[:80]}' is too far away.", hint="At most a year ahead.")
    return Deferral(DeferUntil.TIME, at=moment)


def _told(due: Deferral) -> str:
    match due.moment:
        case DeferUntil.TIME:
            assert due.at is not None
            return f"at {datetime.fromtimestamp(due.at, UTC):%Y-%m-%d %H:%M:%S} UTC or after"
        case DeferUntil.TOOL:
            return f"when {due.tool} is called"
        case DeferUntil.CONDITION:
            return f"once {due.condition} holds"
        case DeferUntil.SESSION:
            return "with the next question"
