"""The events at the start and at the end of a run."""

from __future__ import annotations

from dodona.agent.events.dispatch import emit_event
from dodona.agent.run_context.context import RunContext
from dodona.agent.run_context.registries import leaf
from dodona.core.events import QUERY_START, SESSION_END, SESSION_RESUMED
from dodona.trees import Blackboard


@leaf("oracle.begin")
def begin_session(bb: Blackboard, host: RunContext) -> None:
    """Emit the event for a new question, and for a resumed conversation if there is a history."""
    del bb
    emit_event(host, QUERY_START, question=host.inputs.question.content[:200])
    oracle_context = host.inputs.context
    if host.history.messages:
        last_activity = oracle_context.last_activity or oracle_context.session_start
        idle = host.inputs.question.created_at - last_activity
        emit_event(
            host,
            SESSION_RESUMED,
            previous_model=oracle_context.last_model or host.chosen_model.model.name,
            model=host.chosen_model.model.name,
            idle_seconds=max(0, round(idle)),
            exchanges=host.history.runs,
        )


@leaf("oracle.end_session", reads=("failure",))
def end_session(bb: Blackboard, host: RunContext) -> None:
    """Emit the event for the end of the run, with its status."""
    failure = bb.get("failure")
    host.notifications.has_ended = True
    emit_event(
        host,
        SESSION_END,
        ended=bb["_status"],
        error=failure["code"] if failure else None,
        turns=len(host.turns) + (host.final_answer is not None),
        model=host.answered_by[1],
    )
