"""notify_self: an agent's note to itself, delivered later in this run or in another one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from time import time
from typing import Any, Final

from dodona.conditions import compile_condition
from dodona.core.domain.notices import (
    EVENT_VARIABLES,
    Deferral,
    DeferUntil,
    NewNotice,
)
from dodona.core.errors import ConfigError, ToolRetry
from dodona.core.events import SELF_NOTIFY, Event, Severity
from dodona.core.ports.journal import Effect
from dodona.core.ports.tools import ToolCategory, ToolContext, ToolOutput
from dodona.store.notifications.notices import NoticeLog
from dodona.tools.presentation import string, tool_spec
from dodona.tools.registry import ToolRegistry

MAX_MESSAGE_CHARS: Final = 2_000
MAX_DELAY_SECONDS: Final = 366 * 86_400.0  # how far ahead a note can be scheduled

_PRIORITIES: Final = {
    "low": Severity.DEBUG,
    "normal": Severity.INFO,
    "high": Severity.WARNING,
    "critical": Severity.CRITICAL,
}
_UNIT_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_DELAY = re.compile(r"\+(\d{1,6})([smhd])")

SPEC: Final = tool_spec(
    "notify_self",
    "Leave a note to yourself. By default it is delivered before your next turn. With 'deliver_at' "
    "it is delivered later: at a time, after a delay, or when a tool is called. With "
    "'persist_cross_session' it survives this conversation until it has been delivered.",
    required=("message",),
    message=string("The text of the note.", minLength=1, maxLength=MAX_MESSAGE_CHARS),
    priority=string("The urgency of the note.", enum=list(_PRIORITIES), default="normal"),
    category=string("One word for the topic.", maxLength=40, default="note"),
    deliver_at=string(
        "'2026-01-31T09:00:00Z', '+10m' (s, m, h, d), 'tool:NAME' (when that tool is called), "
        "'when:EXPRESSION' (a CEL expression over `event`), or 'next_session'. Default: the next "
        "turn.",
        maxLength=400,
    ),
    persist_cross_session={
        "type": "boolean",
        "description": "Keep the note after this run until it has been delivered.",
        "default": False,
    },
)


def add(registry: ToolRegistry, log: NoticeLog) -> None:
    """Register notify_self."""

    @registry.tool(
        SPEC,
        category=ToolCategory.META,
        effect=Effect.KEYED,
        keeps_versions=True,  # notices are never changed
        sends=False,
        reads_private=False,
        timeout_seconds=15,
    )
    async def notify_self(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        event = _build_event(arguments, context)
        due = _parse_deferral(arguments.get("deliver_at", ""))
        if due is None:
            if not arguments["persist_cross_session"]:
                return ToolOutput(
                    "Noted. It will be delivered before the next turn.", events=(event,)
                )
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
        # A note for the next session is not delivered in this one.
        notices = () if due.until is DeferUntil.SESSION else (stored,)
        return ToolOutput(f"Noted. It will be delivered {_format_deferral(due)}.", notices=notices)


def _build_event(arguments: Mapping[str, Any], context: ToolContext) -> Event:
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
        marks=context.marks,
    )


def _parse_deferral(text: str) -> Deferral | None:
    """Parse `deliver_at`; None means the next turn."""
    text = text.strip()
    if not text:
        return None
    if text == "next_session":
        return Deferral(DeferUntil.SESSION)
    kind, _, rest = text.partition(":")
    if kind == "tool" and rest.strip():
        return Deferral(DeferUntil.TOOL, tool=rest.strip())
    if kind == "when" and rest.strip():
        return _defer_until_condition(rest.strip())
    if (delay := _DELAY.fullmatch(text)) is not None:
        return _defer_until_time(time() + int(delay[1]) * _UNIT_SECONDS[delay[2]], text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ToolRetry(
            f"'{text[:80]}' is not a valid delivery time.",
            hint="Write '2026-01-31T09:00:00Z', '+10m', 'tool:NAME', 'when:EXPRESSION' or "
            "'next_session'.",
        ) from None
    zoned = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return _defer_until_time(zoned.timestamp(), text)


def _defer_until_condition(condition: str) -> Deferral:
    """Validate the condition now, while the model can still correct it."""
    try:
        compile_condition(condition, names=EVENT_VARIABLES)
    except ConfigError as error:
        raise ToolRetry(f"'{condition[:80]}' is not a valid condition: {error.message}") from None
    return Deferral(DeferUntil.CONDITION, condition=condition)


def _defer_until_time(timestamp: float, text: str) -> Deferral:
    if not 0 <= timestamp <= time() + MAX_DELAY_SECONDS:
        raise ToolRetry(
            f"'{text[:80]}' is too far in the future.", hint="The limit is one year ahead."
        )
    return Deferral(DeferUntil.TIME, at=timestamp)


def _format_deferral(deferral: Deferral) -> str:
    match deferral.until:
        case DeferUntil.TIME:
            assert deferral.at is not None
            return f"at {datetime.fromtimestamp(deferral.at, UTC):%Y-%m-%d %H:%M:%S} UTC or after"
        case DeferUntil.TOOL:
            return f"when {deferral.tool} is called"
        case DeferUntil.CONDITION:
            return f"when {deferral.condition} is true"
        case DeferUntil.SESSION:
            return "with the next question"
