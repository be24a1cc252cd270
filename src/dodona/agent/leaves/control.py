"""Turn control: the decision tree is asked before each turn, and told of each result."""

from __future__ import annotations

from typing import Any

from dodona.agent.decision import notices_of, told, without_notices
from dodona.agent.host import Host
from dodona.agent.leaves.registry import decorator, leaf
from dodona.agent.loops import LoopWatch
from dodona.agent.notice import Notice
from dodona.agent.state import AgentState
from dodona.core import chunks
from dodona.core.events import (
    AGENT_LOOP_DETECTED,
    AGENT_TURN_START,
    BUDGET_ITERATION_WARNING,
    BUDGET_TOKEN_WARNING,
    Severity,
)
from dodona.core.messages import SystemText, ToolCall
from dodona.trees import Blackboard, Step

_WARNINGS = {"turns": BUDGET_ITERATION_WARNING, "tokens": BUDGET_TOKEN_WARNING}
OUTPUT_LIMIT = "max_tokens"  # what the request allowed is used up


@decorator("turn-control", reads=("state",), writes=("state", "hints"), step=True)
def turn_control(bb: Blackboard, host: Host, step: Step) -> bool:
    """May another turn begin? Warnings go to the user here, and to the model with its request."""
    host.is_live = True
    state = _rested(host.state(bb), host.journal.downtime)
    goes_on, reason = host.decisions.should_continue(state)
    if goes_on and host.output_left() == 0:
        goes_on, reason = False, OUTPUT_LIMIT
    if not goes_on:
        host.keep_state(bb, state.terminated(reason))
        return False
    host.turn_began = host.feed.last
    size = chunks.context_update(tokens=host.transcript.tokens, limit=host.chosen.context_size)
    step.emit(size)
    state = host.decisions.on_turn_start(state)
    notices = notices_of(state)
    for notice in notices:
        _warn(host, step, notice)
    bb["hints"] = [notice.text for notice in notices]
    host.keep_state(bb, without_notices(state) if notices else state)
    host.emit(AGENT_TURN_START, Severity.DEBUG, turn=state.turn)
    return True


def _rested(state: AgentState, downtime: float) -> AgentState:
    """Time in which nobody drove the run does not count; each part of it is left out once."""
    before: float = state.extensions.get("downtime", 0.0)
    if downtime <= before:
        return state
    return state.paused(downtime - before).extended(downtime=downtime)


def _warn(host: Host, step: Step, notice: Notice) -> None:
    step.emit(chunks.system(notice.system_type, notice.text, notice.metadata))
    limit: Any = notice.metadata.get("limit")
    if limit in _WARNINGS:
        host.emit(_WARNINGS[limit], Severity.WARNING, **dict(notice.metadata))


@leaf("oracle.give_hints", reads=("hints",))
def give_hints(bb: Blackboard, host: Host) -> None:
    """Let the model's next request end with what it should know of its limits."""
    hints: list[str] = bb["hints"]
    if hints:
        text = "\n".join(hints)
        host.transcript.add(SystemText(text), host.count(text))


@leaf("oracle.detect_loop", reads=("answer", "loop", "state"), writes=("loop", "state"))
def detect_loop(bb: Blackboard, host: Host) -> None:
    """Notice the same calls again and again; the model is told so once."""
    calls = [ToolCall(*call) for call in bb["answer"]["calls"]]
    kept: dict[str, Any] = bb["loop"]
    watch, pattern = (LoopWatch.read(kept) if kept else LoopWatch()).after(calls)
    bb["loop"] = watch.as_json()
    if not pattern:
        return
    notice = Notice(
        "loop_detected",
        f"The same calls come again and again: {pattern[:200]}. Do something else, or answer with "
        "what is known.",
        {"pattern": pattern[:1000]},
    )
    host.keep_state(bb, told(host.state(bb), notice))
    host.emit(AGENT_LOOP_DETECTED, Severity.WARNING, pattern=pattern[:1000])
