"""events.md, of what happens and is told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from dodona.core import events
from dodona.core.events import Severity
from dodona.notify.bus import EVENTS_LOST
from generating.writing import page, prose, table

# What each means, and what its payload holds beside whose it is.
MEANINGS: Final[Mapping[str, tuple[str, str]]] = {
    events.RUN_BEGIN: ("A process begins to drive a run, or takes it up.", "`agent`, `attempt`"),
    events.RUN_END: (
        "A run has ended, and its end is written.",
        "`agent`, `status`, `error`, `seconds` since it was begun",
    ),
    events.QUERY_START: ("A question has come, and its run begins.", "`question`, its beginning"),
    events.SESSION_RESUMED: (
        "A conversation goes on.",
        "`previous_model`, `model`, `idle_seconds`",
    ),
    events.SESSION_END: ("A run is over.", "`ended`, `error`, `turns`, `model`"),
    events.AGENT_TURN_START: ("A turn begins.", "`turn`"),
    events.AGENT_TURN_END: (
        "A turn is over: its calls were made, or the answer is there.",
        "`turn`",
    ),
    events.BUDGET_ITERATION_WARNING: ("Most turns are used.", "as the `system` chunk has it"),
    events.BUDGET_ITERATION_EXCEEDED: ("All turns are used: the run ends.", "likewise"),
    events.BUDGET_TOKEN_WARNING: ("Most tokens are used.", "likewise"),
    events.BUDGET_TOKEN_EXCEEDED: ("All tokens are used: the run ends.", "likewise"),
    events.BUDGET_TIMEOUT_WARNING: ("Most of the time of a run has passed.", "likewise"),
    events.BUDGET_TIMEOUT_EXCEEDED: ("The time of a run is up: it ends.", "likewise"),
    events.CONTEXT_APPROACHING_LIMIT: ("The model's window is nearly full.", "likewise"),
    events.TOOL_CALL_PENDING: (
        "A tool is about to be called; rules may refuse it.",
        "`tool`, `call`, `arguments`",
    ),
    events.TOOL_CALL_SUCCESS: ("A tool was called.", "`tool`, `call`, `ms`"),
    events.TOOL_CALL_FAILURE: (
        "A call of a tool came to nothing.",
        "`tool`, `call`, `ms`, `error`",
    ),
    events.TOOL_CALL_TIMEOUT: ("A call of a tool took too long.", "likewise"),
    events.AGENT_LOOP_DETECTED: ("The same calls come again and again.", "`pattern`"),
    events.TOOL_CALL_HELD: (
        "A person is asked before a call is made, because [text from outside]"
        "(../explanation/security.md#text-from-outside) was read before.",
        "`tool`, `call`, `reason`",
    ),
    events.SUBAGENT_COMPLETE: (
        "An agent has done what the Oracle handed on to it.",
        "`agent`, `ms`, `report`, its beginning",
    ),
    events.SUBAGENT_FAILED: ("It came to nothing.", "likewise"),
    events.TASK_CHECKPOINT: ("A run has taken some turns more.", "`turn`, `message`"),
    events.SELF_NOTIFY: (
        "The agent, by the tool `notify_self`, or a rule wants the agent to be told something.",
        "`message`, `priority`, `category`",
    ),
    events.SOURCE_STALE: ("A note or file has changed since it was read.", "`path`"),
    events.CONTEXT_COMPRESSED: (
        "Older exchanges have become a summary.",
        "`summary_of`, `runs`, `tokens_before`, `tokens_after`, `model`",
    ),
    EVENTS_LOST: ("A listener was too slow; so many events are missing here.", "`count`"),
    events.TREE_RELOADED: (
        "A tree was saved, and is used from now on.",
        "`tree`, `diff`",
    ),
    events.TREE_RELOAD_FAILED: ("A tree was saved that does not load.", "`error`"),
    events.TREE_STUCK: (
        "A run was stuck, and the watchdog failed it.",
        "`nodes`, `seconds`, `count`, `blackboard`",
    ),
    events.TREE_ESCALATED: ("It was stuck again and again; the recovery tree runs.", "likewise"),
    events.TREE_UNRESPONSIVE: (
        "A leaf does not stop though it was halted.",
        "`node`, `leaf`, `detached`, `grace_seconds`",
    ),
    events.TREE_CONFLICT: ("Two children of a parallel wrote the same key.", "`key`"),
}


def events_page() -> str:
    return page(
        "# Events",
        prose("""What happens, told to whoever listens: `GET /api/events` streams the caller's own
            from now on, and `types` names those that are wanted, as in `tool.*,session.end`. What
            happened before is not told again: for that there are [runs](http.md#get-apiruns).
            [Subscribers](subscribers.md) make notices of them, and [rules](rules.md) decide what
            else shall happen: see [notices](../explanation/notices.md)."""),
        prose("""An event has `id`, `type`, `source`, `severity`, `payload`, `dedupe_key` and
            `timestamp`, in seconds since 1970. The payload of an agent's event has `user_id`,
            `project_id` and `run_id`. What belongs to no user, as `tree.*`, is not streamed: it is
            for the log."""),
        table(
            ("type", "name in Python", "what happened", "payload"),
            [(f"`{type_}`", _name(type_), *told) for type_, told in MEANINGS.items()],
        ),
        prose("""Rules may make up events of their own. Their types begin with `plugin.` and the
            name of the rule's pack; `user` stands for the rules in your own folder."""),
        "Severities are " + ", ".join(f"`{severity.value}`" for severity in Severity) + ".",
    )


def _name(type_: str) -> str:
    found = [name for name, value in vars(events).items() if name.isupper() and value == type_]
    return f"`{found[0]}`" if found else ""
