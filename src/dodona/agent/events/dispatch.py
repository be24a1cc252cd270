"""Telling what happens: to the bus at once, to the run's inbox, and to the rules.

What a step tells is heard by nobody who resumes the run: so steps that run tools only tell the bus,
and a pure leaf hears later of what they left. Rules may set off events, a few deep.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, assert_never

from dodona.agent.run_context.context import RunContext
from dodona.agent.turn_control.state import AgentState
from dodona.core import chunks
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
from dodona.core.events import SELF_NOTIFY, TOOL_CALL_PENDING, Event, Severity
from dodona.trees import Blackboard, Step

MAX_RULE_DEPTH: Final = 5  # of events that rules set off, each by the one before
MAX_RESULT_CHARS: Final = 2_000  # characters of a result that rules see

_SEVERITIES: Final = {
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
    host: RunContext, kind: str, severity: Severity = Severity.INFO, **payload: Any
) -> None:
    """Tell the bus, unless it was told before a crash, and let the run hear of it."""
    event = host.build_event(kind, severity, payload)
    host.emit(event)
    handle_event(host, event)


def emit_tree_event(host: RunContext, event: Event) -> None:
    """What a tree's runtime tells belongs to the run, and is heard by it."""
    whose = host.build_event(event.type, event.severity, event.payload)
    told = replace(event, payload=whose.payload)
    host.emit(told)
    handle_event(host, told)


def handle_event(
    host: RunContext,
    event: Event,
    *,
    result: Mapping[str, Any] | None = None,
    depth: int = 0,
) -> list[RuleAction]:
    """Let subscribers and rules make of an event what they will.

    Returned is what must be decided about the call that is pending, if that is the event.
    """
    hearing = host.notifications
    if hearing.has_ended and event.type == SELF_NOTIFY:
        hearing.late_events.append(event)
        return []
    hearing.inbox.receive(event)
    if not hearing.rules.listens_to(event.type):
        return []
    fired = hearing.rules.evaluate(
        event,
        rule_context(host, event, result or {}),
        overrides=hearing.overrides.rules,
        state=hearing.overrides.pack_state,
        fired_rules=frozenset(hearing.fired_rules),
    )
    verdicts: list[RuleAction] = []
    for each in fired:
        hearing.fired_rules.add(each.rule)
        if _is_verdict(each, event):
            verdicts.append(each)
        else:
            _apply_action(host, each, depth)
    return verdicts


def _is_verdict(fired: RuleAction, event: Event) -> bool:
    return event.type == TOOL_CALL_PENDING and isinstance(
        fired.action, Deny | RequireApproval | RunTree
    )


def _apply_action(host: RunContext, fired: RuleAction, depth: int) -> None:
    action = fired.action
    match action:
        case NotifySelf():
            _emit_from_rule(host, fired, self_notice_event(host, action, fired.rule), depth)
        case EmitEvent():
            made = host.build_event(action.type, action.severity, action.payload)
            _emit_from_rule(host, fired, replace(made, source=f"rule.{fired.rule}"), depth)
        case LogMessage():
            if host.is_live:
                level = _LOG_LEVELS.get(action.level, logging.INFO)
                _rule_log.log(level, "%s: %s", fired.rule, action.message)
        case SetState():
            set_pack_state(host, fired.pack, {action.key: action.value})
        case RunTree():
            host.notifications.pending_trees.append(fired)
        case Deny() | RequireApproval():
            _log.warning("rule %s decides about a call that nobody makes", fired.rule)
        case _:
            assert_never(action)


def _emit_from_rule(host: RunContext, fired: RuleAction, event: Event, depth: int) -> None:
    if depth >= MAX_RULE_DEPTH:
        _log.warning("rule %s was not heeded: rules set off each other", fired.rule)
        return
    host.emit(event)
    handle_event(host, event, depth=depth + 1)


def self_notice_event(host: RunContext, action: NotifySelf, rule: str) -> Event:
    """What a rule wants the agent to know, as an event."""
    severity = _SEVERITIES.get(action.priority, Severity.INFO)
    payload = {"message": action.message, "priority": action.priority, "category": action.category}
    return replace(host.build_event(SELF_NOTIFY, severity, payload), source=f"rule.{rule}")


def set_pack_state(host: RunContext, pack: str, values: Mapping[str, Any]) -> None:
    """Keep values for a pack: at once for the rules, and with the run's next commit for good."""
    kept = host.notifications.overrides.pack_state.setdefault(pack, {})
    kept.update(values)
    if host.is_live:
        putting = host.deps.storage.pack_state.put_operation
        host.journal.add_to_next_commit(putting(host.user_id, pack, values))


def rule_context(host: RunContext, event: Event, result: Mapping[str, Any]) -> dict[str, Any]:
    """What conditions of rules see: small and flat, for it is made anew each time."""
    state: AgentState = host.latest_state
    limits = state.config
    hearing = host.notifications
    return {
        "turn": {
            "number": state.turn,
            "max_iterations": limits.max_iterations,
            "tokens_used": state.tokens_used,
            "token_budget": limits.token_budget,
            "context_tokens": host.context_tokens,
            "context_size": host.chosen_model.context_size,
            "elapsed_seconds": round(state.elapsed_seconds, 3),
            "timeout_seconds": limits.timeout_seconds,
        },
        "history": {
            "runs": host.history.runs,
            "tool_calls": hearing.call_count,
            "failures": dict(hearing.failures_by_tool),
            "failures_in_a_row": state.extensions.get("errors_in_a_row", 0),
        },
        "user": {"id": host.user_id, "settings": limits.as_dict()},
        "project": {"id": host.project_id},
        "event": {
            "type": event.type,
            "source": event.source,
            "severity": event.severity.value,
            "payload": dict(event.payload),
        },
        "result": dict(result),
    }


def rule_result(result: Mapping[str, Any]) -> dict[str, Any]:
    """What came of a call, as rules see it."""
    text: str = result["text"]
    return {
        "tool": result["name"],
        "call": result["id"],
        "characters": len(text),
        "entries": result.get("entries", 0) or len(result["sources"]),
        "failed": result["failed"],
        "ms": result["ms"],
        "text": text[:MAX_RESULT_CHARS],
    }


def deliver_notices(
    host: RunContext, step: Step, *points: InjectionPoint, is_last: bool = False
) -> list[Notice]:
    """Take what is due from the inbox, in a step: shown to the user now, to the model next."""
    notices = host.notifications.inbox.drain(*points, is_last=is_last)
    stored = [number for notice in notices for number in notice.stored_ids]
    if stored:
        host.journal.add_to_next_commit(
            host.deps.storage.notices.mark_delivered(host.user_id, stored)
        )
    if not host.is_subagent:
        for notice in notices:
            if notice.user_text:
                step.emit(chunks.system(notice.system_type, notice.user_text, notice.metadata))
    return notices


def store_notices(bb: Blackboard, host: RunContext, notices: list[Notice]) -> None:
    """What a step that drained leaves for the leaf that puts it before the model."""
    bb["notices"] = [notice.as_json() for notice in notices]
    bb["inbox"] = host.notifications.as_json()
