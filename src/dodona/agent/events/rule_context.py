"""The context of rules: what conditions, templates and rule trees can read of a run.

It is built for each event that a rule listens to, so what takes long is built when a rule reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import zip_longest
from typing import Any, Final

from dodona.agent.conversation.exchange import parse_arguments
from dodona.agent.run_context.context import RunContext
from dodona.agent.run_context.records import ToolResultRecord
from dodona.conditions import LazyFields
from dodona.core.events import Event
from dodona.core.messages import (
    AssistantText,
    ContextText,
    Message,
    SystemText,
    ToolResult,
    UserText,
)

MAX_MESSAGES: Final = 20  # the newest
MAX_CALLS: Final = 50  # the newest
MAX_TEXT_CHARS: Final = 2_000  # of a message, and of a tool result

_ROLES: Final[Mapping[type[Message], str]] = {
    SystemText: "system",
    UserText: "user",
    ContextText: "context",
    AssistantText: "assistant",
    ToolResult: "tool",
}


def rule_values(context: RunContext, event: Event, result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parts of the context, by name."""
    state, limits = context.latest_state, context.role.limits
    notifications = context.notifications
    return {
        "turn": {
            "number": state.turn,
            "max_iterations": limits.max_iterations,
            "tokens_used": state.tokens_used,
            "token_budget": limits.token_budget,
            "context_tokens": context.context_tokens,
            "context_size": context.chosen_model.context_size,
            "elapsed_seconds": round(state.elapsed_seconds, 3),
            "timeout_seconds": limits.timeout_seconds,
        },
        "history": LazyFields(
            {
                "runs": context.history.runs,
                "tool_calls": notifications.call_count,
                "failures": dict(notifications.failures_by_tool),
                "failures_in_a_row": state.errors_in_a_row,
                "calls": lambda: _recent_calls(context),
                "messages": lambda: _recent_messages(context),
            }
        ),
        "user": LazyFields({"id": context.user_id, "settings": context.snapshot.settings.as_dict}),
        "project": {"id": context.project_id, "settings": context.inputs.project.settings},
        "event": {
            "type": event.type,
            "source": event.source,
            "severity": event.severity.value,
            "payload": dict(event.payload),
        },
        "result": dict(result),
    }


def _recent_messages(context: RunContext) -> list[dict[str, Any]]:
    """The newest messages that the model sees, oldest first, without the system prompt."""
    messages = context.transcript.messages[1:][-MAX_MESSAGES:]
    return [{"role": _ROLES[type(m)], "text": m.text[:MAX_TEXT_CHARS]} for m in messages]


def _recent_calls(context: RunContext) -> list[dict[str, Any]]:
    """The newest tool calls of the agent in this run, oldest first."""
    calls = [
        {
            "tool": call.name,
            "arguments": parse_arguments(call.arguments),
            "failed": result.failed,
            "ms": milliseconds,
        }
        for turn in context.turns[-MAX_CALLS:]
        for call, result, milliseconds in zip_longest(
            turn.answer.calls, turn.results, turn.durations
        )
    ]
    return calls[-MAX_CALLS:]


def tool_result_for_rules(result: ToolResultRecord) -> dict[str, Any]:
    """Return a tool result in the form that rules see."""
    return {
        "tool": result.name,
        "call": result.id,
        "characters": len(result.text),
        "entries": result.entry_count or len(result.sources),
        "failed": result.failed,
        "summarised": result.is_summary,
        "ms": result.duration_ms,
        "text": result.text[:MAX_TEXT_CHARS],
    }
