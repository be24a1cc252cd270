"""How a run begins and ends, told to whoever listens."""

from __future__ import annotations

from dodona.agent.host import Host
from dodona.agent.leaves.registry import leaf
from dodona.core.events import QUERY_START, SESSION_END, SESSION_RESUMED
from dodona.trees import Blackboard


@leaf("oracle.begin")
def begin(bb: Blackboard, host: Host) -> None:
    """Tell that a question came in, and whether its context goes on with another model."""
    del bb
    host.emit(QUERY_START, question=host.brief.question.content[:200])
    before, now = host.brief.context.last_model, host.chosen.model.name
    if before and before != now:
        host.emit(SESSION_RESUMED, previous_model=before, model=now)


@leaf("oracle.end_session", reads=("failure",))
def end_session(bb: Blackboard, host: Host) -> None:
    """Tell that the run is over, and how it went."""
    failure = bb.get("failure")
    host.emit(
        SESSION_END,
        ended=bb["_status"],
        error=failure["code"] if failure else None,
        turns=len(host.turns) + (host.final is not None),
        model=host.used[1],
    )
