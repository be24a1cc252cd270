"""Turn control: the decision tree is asked before each turn, and told of each result."""

from __future__ import annotations

from typing import Any

from dodona.agent.events.dispatch import deliver_notices, emit_event, store_notices
from dodona.agent.run_context.context import RunContext
from dodona.agent.run_context.registries import decorator, leaf
from dodona.agent.turn_control.decision import TurnWarning, pending_warnings, without_warnings
from dodona.agent.turn_control.loop_detector import LoopDetector
from dodona.agent.turn_control.state import AgentState
from dodona.core import chunks
from dodona.core.domain import notices
from dodona.core.domain.notices import InjectionPoint
from dodona.core.events import AGENT_LOOP_DETECTED, AGENT_TURN_START, TASK_CHECKPOINT, Severity
from dodona.core.messages import ToolCall
from dodona.trees import Blackboard, Step

OUTPUT_LIMIT = "max_tokens"  # what the request allowed is used up
CHECKPOINT_INTERVAL_TURNS = 10  # turns after which an agent should look back


@decorator("turn-control", reads=("state",), writes=("state", "notices", "inbox"), step=True)
def turn_control(bb: Blackboard, host: RunContext, step: Step) -> bool:
    """May another turn begin? What it should know goes to the user here, then to the model."""
    host.is_live = True
    state = _exclude_downtime(host.load_state(bb), host.journal.downtime)
    goes_on, reason = host.decision_tree.should_continue(state)
    if goes_on and host.output_tokens_left() == 0:
        goes_on, reason = False, OUTPUT_LIMIT
    if not goes_on:
        host.save_state(bb, state.terminated(reason))
        return False
    host.turn_start_seq = host.feed.last_seq
    if not host.is_subagent:
        _emit_context_size(host, step)
    state = host.decision_tree.on_turn_start(state)
    own = [_warning_to_notice(host, step, notice) for notice in pending_warnings(state)]
    state = without_warnings(state) if own else state
    host.save_state(bb, state)
    emit_event(host, AGENT_TURN_START, Severity.DEBUG, turn=state.turn)
    if state.turn % CHECKPOINT_INTERVAL_TURNS == 0 and state.turn < state.config.iteration_warning:
        said = f"{state.turn} turns so far. Look back: what is done, and what is left to do?"
        emit_event(host, TASK_CHECKPOINT, turn=state.turn, message=said)
    store_notices(
        bb,
        host,
        [*own, *deliver_notices(host, step, InjectionPoint.IMMEDIATE, InjectionPoint.TURN_START)],
    )
    return True


def _emit_context_size(host: RunContext, step: Step) -> None:
    size = chunks.context_update(
        tokens=host.transcript.tokens, limit=host.chosen_model.context_size
    )
    step.emit(size)


def _exclude_downtime(state: AgentState, downtime: float) -> AgentState:
    """Time in which nobody drove the run does not count; each part of it is left out once."""
    before: float = state.extensions.get("downtime", 0.0)
    if downtime <= before:
        return state
    return state.with_pause(downtime - before).with_extensions(downtime=downtime)


def _warning_to_notice(host: RunContext, step: Step, warning: TurnWarning) -> notices.Notice:
    """What the decision tree itself has to say, shown at once."""
    if not host.is_subagent:
        step.emit(chunks.system(warning.system_type, warning.text, warning.metadata))
    return notices.Notice(
        subscriber="turn-control",
        event_type=AGENT_TURN_START,
        severity=Severity.WARNING,
        point=InjectionPoint.TURN_START,
        text=warning.text,
        user_text=warning.text,
        system_type=warning.system_type,
        metadata=warning.metadata,
        is_persistent=False,
    )


@leaf("oracle.detect_loop", reads=("answer", "loop"), writes=("loop",))
def detect_loop(bb: Blackboard, host: RunContext) -> None:
    """Notice the same calls again and again; the model is told so once."""
    calls = [ToolCall(*call) for call in bb["answer"]["calls"]]
    kept: dict[str, Any] = bb["loop"]
    watch, pattern = (LoopDetector.read(kept) if kept else LoopDetector()).observe(calls)
    bb["loop"] = watch.as_json()
    if pattern:
        emit_event(host, AGENT_LOOP_DETECTED, Severity.WARNING, pattern=pattern[:1000])
