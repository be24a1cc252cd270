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
    events.QUERY_START: ("A question has come, and its run begins.", "`question`, its beginning"),
    events.SESSION_RESUMED: ("A context goes on with another model.", "`previous_model`, `model`"),
    events.SESSION_END: ("A run is over.", "`ended`, `error`, `turns`, `model`"),
    events.AGENT_TURN_START: ("A turn begins.", "`turn`"),
    events.BUDGET_ITERATION_WARNING: ("Most turns are used.", "as the `system` chunk has it"),
    events.BUDGET_ITERATION_EXCEEDED: ("All turns are used: the run ends.", "likewise"),
    events.BUDGET_TOKEN_WARNING: ("Most tokens are used.", "likewise"),
    events.BUDGET_TOKEN_EXCEEDED: ("All tokens are used: the run ends.", "likewise"),
    events.BUDGET_TIMEOUT_EXCEEDED: ("The time of a run is up: it ends.", "likewise"),
    events.CONTEXT_APPROACHING_LIMIT: ("The model's window is nearly full.", "likewise"),
    events.TOOL_CALL_SUCCESS: ("A tool was called.", "`tool`, `call`, `ms`"),
    events.TOOL_CALL_FAILURE: ("A call of a tool came to nothing.", "`tool`, `call`, `ms`"),
    events.AGENT_LOOP_DETECTED: ("The same calls come again and again.", "`pattern`"),
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
            happened before is not told again: for that there are [runs](http.md#get-apiruns)."""),
        prose("""An event has `type`, `source`, `severity`, `payload` and `timestamp`, in seconds
            since 1970. The payload of an agent's event has `user_id`, `project_id` and `run_id`.
            What belongs to no user, as `tree.*`, is not streamed: it is for the log."""),
        table(
            ("type", "name in Python", "what happened", "payload"),
            [(f"`{type_}`", _name(type_), *told) for type_, told in MEANINGS.items()],
        ),
        "Severities are " + ", ".join(f"`{severity.value}`" for severity in Severity) + ".",
    )


def _name(type_: str) -> str:
    found = [name for name, value in vars(events).items() if name.isupper() and value == type_]
    return f"`{found[0]}`" if found else ""
