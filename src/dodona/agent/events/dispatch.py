"""Dispatch of events: to the bus, to the run's inbox, and to the rules.

A resumed run does not repeat its steps, so events handled inside a step would be lost to it.
Steps that run tools therefore only emit to the bus; a pure leaf handles their events later, from
the stored results. Rules may emit further events, up to `MAX_RULE_DEPTH` levels deep.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, assert_never

from msgspec import to_builtins
from msgspec.structs import replace

from dodona.agent.events.rule_context import rule_values
from dodona.agent.run_context.context import RunContext
from dodona.core.chunks import SystemChunk
from dodona.core.domain.notices import InjectionPoint, Notice
from dodona.core.domain.rules import (
    Deny,
    EmitEvent,
    LogMessage,
    NotifySelf,
    RequireApproval,
    RuleAction,
    RunTree,
    SetState,
)
from dodona.core.domain.trust import can_hold_text, merge_marks
from dodona.core.events import SELF_NOTIFY, TOOL_CALL_PENDING, Event, Severity
from dodona.store.key_values import StoredValue
from dodona.trees import Blackboard

MAX_RULE_DEPTH: Final = 5  # levels of events that rules emit in response to events

_SEVERITY_BY_PRIORITY: Final = {
    "low": Severity.DEBUG,
    "normal": Severity.INFO,
    "high": Severity.WARNING,
    "critical": Severity.CRITICAL,
}
_LOG_LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}

_log = logging.getLogger(__name__)
_rule_log = logging.getLogger("dodona.rules")


def emit_event(
    context: RunContext, kind: str, severity: Severity = Severity.INFO, **payload: Any
) -> None:
    """Emit an event of the run: to the bus, unless this is a replay, and to the run itself."""
    event = context.build_event(kind, severity, payload)
    context.emit(event)
    handle_event(context, event)


def emit_tree_event(context: RunContext, event: Event) -> None:
    """Emit an event of the tree runtime as an event of the run."""
    if "blackboard" in event.payload:  # it may have results that no model has read
        context.read_results()
    run_event = context.build_event(event.type, event.severity, event.payload)
    event = replace(event, payload=run_event.payload, marks=run_event.marks)
    context.emit(event)
    handle_event(context, event)


def handle_event(
    context: RunContext,
    event: Event,
    *,
    result: Mapping[str, Any] | None = None,
    depth: int = 0,
) -> list[RuleAction]:
    """Pass an event to the subscribers and rules of the run.

    For a pending tool call, return the rule actions that decide about the call.
    """
    notifications = context.notifications
    if notifications.has_ended and event.type == SELF_NOTIFY:
        notifications.events_after_end.append(event)
        return []
    notifications.inbox.receive(event)
    if not notifications.rules.listens_to(event.type):
        return []
    fired_actions = notifications.rules.evaluate(
        event,
        rule_values(context, event, result or {}),
        overrides=notifications.overrides.rules,
        state=notifications.overrides.pack_state,
        fired_rules=frozenset(notifications.fired_rules),
    )
    verdicts: list[RuleAction] = []
    for fired in _with_marks(context, event, fired_actions):
        notifications.fired_rules.add(fired.rule)
        if _is_verdict(fired, event):
            verdicts.append(fired)
        else:
            _apply_action(context, fired, depth)
    return verdicts


def _with_marks(
    context: RunContext, event: Event, fired_actions: Sequence[RuleAction]
) -> Iterator[RuleAction]:
    """Yield the actions with the marks of what their rules read: run, event and pack's state."""
    for fired in fired_actions:
        pack_marks = context.notifications.overrides.pack_marks(fired.pack)
        marks = merge_marks(context.marks, event.marks, pack_marks)
        yield dataclasses.replace(fired, marks=marks) if marks else fired


def _is_verdict(fired: RuleAction, event: Event) -> bool:
    return event.type == TOOL_CALL_PENDING and isinstance(
        fired.action, Deny | RequireApproval | RunTree
    )


def _apply_action(context: RunContext, fired: RuleAction, depth: int) -> None:
    action = fired.action
    match action:
        case NotifySelf():
            _emit_from_rule(context, fired, self_notice_event(context, action, fired), depth)
        case EmitEvent():
            event = context.build_event(action.type, action.severity, action.payload)
            event = replace(event, source=f"rule.{fired.rule}", marks=fired.marks)
            _emit_from_rule(context, fired, event, depth)
        case LogMessage():
            if context.is_live:
                level = _LOG_LEVELS.get(action.level, logging.INFO)
                _rule_log.log(level, "%s: %s", fired.rule, action.message)
        case SetState():
            set_pack_state(context, fired, {action.key: action.value})
        case RunTree():
            context.notifications.pending_rule_trees.append(fired)
        case Deny() | RequireApproval():
            _log.warning("rule %s: ignored a decision without a pending tool call", fired.rule)
        case _:
            assert_never(action)


def _emit_from_rule(context: RunContext, fired: RuleAction, event: Event, depth: int) -> None:
    if depth >= MAX_RULE_DEPTH:
        _log.warning("rule %s: event ignored, because rules trigger each other", fired.rule)
        return
    context.emit(event)
    handle_event(context, event, depth=depth + 1)


def self_notice_event(context: RunContext, action: NotifySelf, fired: RuleAction) -> Event:
    """Return the event for a rule's notice to the agent."""
    severity = _SEVERITY_BY_PRIORITY.get(action.priority, Severity.INFO)
    payload = {"message": action.message, "priority": action.priority, "category": action.category}
    event = context.build_event(SELF_NOTIFY, severity, payload)
    return replace(event, source=f"rule.{fired.rule}", marks=fired.marks)


def set_pack_state(context: RunContext, fired: RuleAction, values: Mapping[str, Any]) -> None:
    """Set values of a pack's state. Rules see them at once; the next commit stores them.

    A value has the marks of the run. A text may also be derived from all that the rule has read; a
    number or a flag cannot contain instructions, so counters do not keep the marks of older state.
    """
    stored = {
        key: StoredValue(value, fired.marks if can_hold_text(value) else context.marks)
        for key, value in values.items()
    }
    context.notifications.overrides.set_pack_state(fired.pack, stored)
    if context.is_live:
        put_operation = context.deps.storage.pack_state.put_operation
        context.journal.add_to_next_commit(put_operation(context.user_id, fired.pack, stored))


def deliver_notices(
    context: RunContext,
    emit: Callable[[SystemChunk], object],
    *points: InjectionPoint,
    is_last: bool = False,
) -> list[Notice]:
    """Drain due notices from the inbox. The user sees them now, the model next.

    `emit` must store the chunks: it is that of a step.
    """
    notices = context.notifications.inbox.drain(*points, is_last=is_last)
    stored_ids = [stored_id for notice in notices for stored_id in notice.stored_ids]
    if stored_ids:
        context.journal.add_to_next_commit(
            context.deps.storage.notices.mark_delivered(context.user_id, stored_ids)
        )
    if not context.is_subagent:
        for notice in notices:
            if notice.user_text:
                chunk = SystemChunk(
                    system_type=notice.system_type,
                    system_message=notice.user_text,
                    metadata=dict(notice.metadata),
                )
                emit(chunk)
    return notices


def put_notices_on_blackboard(bb: Blackboard, context: RunContext, notices: list[Notice]) -> None:
    """Put drained notices on the blackboard, for the leaf that adds them to the transcript."""
    bb["notices"] = to_builtins(notices)
    bb["inbox"] = to_builtins(context.notifications.state())
