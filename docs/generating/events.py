"""Generates events.md from the event types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from dodona.core import events
from dodona.core.events import Severity
from dodona.notify.bus import EVENTS_LOST
from generating.writing import page, prose, table

# The meaning and the payload of each type, without the ids of user, project and run.
MEANINGS: Final[Mapping[str, tuple[str, str]]] = {
    events.RUN_BEGIN: ("A process started or resumed a run.", "`agent`, `attempt`"),
    events.RUN_END: (
        "A run ended, and its result is stored.",
        "`agent`, `status`, `termination_reason`, `error`, `seconds` since its start",
    ),
    events.QUERY_START: ("A question arrived, and its run starts.", "`question` (its beginning)"),
    events.SESSION_RESUMED: (
        "A conversation continues.",
        "`previous_model`, `model`, `idle_seconds`",
    ),
    events.SESSION_END: (
        "A run ended.",
        "`ended`, `finish`, `termination_reason`, `error`, `turns`, `subagent_turns`, `model`",
    ),
    events.AGENT_TURN_START: ("A turn starts.", "`turn`"),
    events.AGENT_TURN_END: (
        "A turn ended, with tool calls or the answer.",
        "`turn`",
    ),
    events.BUDGET_ITERATION_WARNING: ("Most turns are used.", "as in the `system` chunk"),
    events.BUDGET_ITERATION_EXCEEDED: ("All turns are used: the run ends.", "the same"),
    events.BUDGET_TOKEN_WARNING: ("Most tokens are used.", "the same"),
    events.BUDGET_TOKEN_EXCEEDED: ("All tokens are used: the run ends.", "the same"),
    events.BUDGET_TIMEOUT_WARNING: ("Most of the run's time is used.", "the same"),
    events.BUDGET_TIMEOUT_EXCEEDED: ("The run timed out: it ends.", "the same"),
    events.CONTEXT_APPROACHING_LIMIT: ("The model's context window is nearly full.", "the same"),
    events.TOOL_CALL_PENDING: (
        "A tool is about to be called. Rules can deny the call.",
        "`tool`, `call`, `arguments`",
    ),
    events.TOOL_CALL_SUCCESS: ("A tool call succeeded.", "`tool`, `call`, `ms`"),
    events.TOOL_CALL_FAILURE: (
        "A tool call failed.",
        "`tool`, `call`, `ms`, `error`",
    ),
    events.TOOL_CALL_TIMEOUT: ("A tool call timed out.", "the same"),
    events.AGENT_NO_PROGRESS: (
        "A call has returned the same result again, after a warning: the run ends.",
        "as in the `system` chunk",
    ),
    events.AGENT_ERROR_LIMIT: (
        "Every tool call failed, in three turns in a row: the run ends.",
        "the same",
    ),
    events.AGENT_LOOP_DETECTED: ("The model repeats the same calls.", "`pattern`"),
    events.TOOL_CALL_HELD: (
        "A tool call requires approval, because the run has read [untrusted text]"
        "(../explanation/security.md#untrusted-text).",
        "`tool`, `call`, `reason`",
    ),
    events.SUBAGENT_COMPLETE: (
        "A subagent finished its task.",
        "`agent`, `ms`, `turns`, `tokens`, `report` (its beginning)",
    ),
    events.SUBAGENT_FAILED: ("A subagent failed.", "the same"),
    events.TASK_CHECKPOINT: ("A run passed another number of turns.", "`turn`, `message`"),
    events.SELF_NOTIFY: (
        "The agent (with the tool `notify_self`) or a rule sent the agent a notice.",
        "`message`, `priority`, `category`",
    ),
    events.SOURCE_STALE: ("A note or file changed after the agent read it.", "`path`"),
    events.CONTEXT_COMPRESSED: (
        "Older exchanges were replaced by a summary.",
        "`summary_of`, `runs`, `tokens_before`, `tokens_after`, `model`",
    ),
    EVENTS_LOST: ("The client was too slow, and events were dropped.", "`count`"),
    events.TREE_RELOADED: (
        "A tree file was saved, and the new tree is in use.",
        "`tree`, `diff`",
    ),
    events.TREE_RELOAD_FAILED: ("A tree file was saved, but does not load.", "`error`"),
    events.TREE_STUCK: (
        "A run was stuck, and the watchdog failed it.",
        "`nodes`, `seconds`, `count`, `blackboard`",
    ),
    events.TREE_ESCALATED: ("A run was stuck repeatedly; the recovery tree runs.", "the same"),
    events.TREE_UNRESPONSIVE: (
        "A halted leaf does not stop.",
        "`node`, `leaf`, `detached`, `grace_seconds`",
    ),
    events.TREE_CONFLICT: ("Two children of a parallel wrote the same key.", "`key`"),
}


def events_page() -> str:
    """Return the text of events.md."""
    return page(
        "# Events",
        prose("""`GET /api/events` streams the user's events from now on; `types` filters them, such
            as `tool.*,session.end`. The stream has no past events: use [runs](http.md#get-apiruns)
            for those. [Subscribers](subscribers.md) turn events into notices, and
            [rules](rules.md) run actions: see [notices](../explanation/notices.md)."""),
        prose("""An event has `id`, `type`, `source`, `severity`, `payload`, `dedupe_key` and
            `timestamp`, in seconds since 1970. The payload of an agent's event has `user_id`,
            `project_id` and `run_id`. Events without a user, such as `tree.*`, are logged but not
            streamed."""),
        table(
            ("type", "Python constant", "meaning", "payload"),
            [(f"`{type_}`", _name(type_), *texts) for type_, texts in MEANINGS.items()],
        ),
        prose("""Rules can emit custom events. Their types start with `plugin.` and the name of the
            rule's pack, or `plugin.user` for rules in your rules folder."""),
        "Severities: " + ", ".join(f"`{severity.value}`" for severity in Severity) + ".",
    )


def _name(type_: str) -> str:
    names = [name for name, value in vars(events).items() if name.isupper() and value == type_]
    return f"`{names[0]}`" if names else ""
