"""How a run begins and ends, told to whoever listens."""

from __future__ import annotations

from dodona.agent.events.dispatch import emit_event
from dodona.agent.run_context.context import RunContext
from dodona.agent.run_context.registries import leaf
from dodona.core.events import QUERY_START, SESSION_END, SESSION_RESUMED
from dodona.trees import Blackboard


@leaf("oracle.begin")
def begin_session(bb: Blackboard, host: RunContext) -> None:
    """Tell that a question came in, and from where its conversation goes on."""
    del bb
    emit_event(host, QUERY_START, question=host.inputs.question.content[:200])
    context = host.inputs.context
    if host.history.messages:
        idle = host.inputs.question.created_at - (context.last_activity or context.session_start)
        emit_event(
            host,
            SESSION_RESUMED,
            previous_model=context.last_model or host.chosen_model.model.name,
            model=host.chosen_model.model.name,
            idle_seconds=max(0, round(idle)),
            exchanges=host.history.runs,
        )


@leaf("oracle.end_session", reads=("failure",))
def end_session(bb: Blackboard, host: RunContext) -> None:
    """Tell that the run is over, and how it went."""
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
