"""Turn control: the check of the decision tree before each turn, and loop detection.

Also the events at the start and at the end of a run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import convert, to_builtins
from msgspec.structs import replace

from dodona.agent.events.dispatch import deliver_notices, emit_event, put_notices_on_blackboard
from dodona.agent.run_context.context import RunContext
from dodona.agent.run_context.records import AnswerRecord
from dodona.agent.turn_control.decision import (
    CANCELLED,
    ERROR,
    FINISHED,
    MAX_TOKENS,
    TIMEOUT,
    finish_of,
)
from dodona.agent.turn_control.loop_detector import LoopDetector
from dodona.agent.turn_control.state import AgentState, TurnWarning
from dodona.core.chunks import ContextUpdateChunk
from dodona.core.domain import notices
from dodona.core.domain.notices import InjectionPoint
from dodona.core.events import (
    AGENT_LOOP_DETECTED,
    AGENT_TURN_START,
    QUERY_START,
    SESSION_END,
    SESSION_RESUMED,
    TASK_CHECKPOINT,
    Severity,
)
from dodona.core.ports.model import FinishReason
from dodona.trees import SUCCESS, Blackboard, Step, decorator, leaf
from dodona.trees.runtime.run import OUT_OF_TIME

CHECKPOINT_INTERVAL_TURNS = 10  # the agent is asked to review its progress


@decorator("turn-control", reads=("state",), writes=("state", "notices", "inbox"), step=True)
def turn_control(bb: Blackboard, host: RunContext, step: Step) -> bool:
    """Check whether another turn may start; show due notices to the user, then to the model."""
    state = _exclude_downtime(host.load_state(bb), host.journal.downtime_seconds)
    may_continue, reason = host.decision_tree.should_continue(state)
    if may_continue and host.output_tokens_left() == 0:
        may_continue, reason = False, MAX_TOKENS
    if not may_continue:
        host.save_state(bb, state.terminated(reason))
        return False
    host.turn_start_seq = host.feed.last_seq
    if not host.is_subagent:
        _emit_context_size(host, step)
    state = host.decision_tree.on_turn_start(state)
    warnings = [_warning_to_notice(host, step, each) for each in state.pending_warnings]
    state = replace(state, pending_warnings=()) if warnings else state
    host.save_state(bb, state)
    emit_event(host, AGENT_TURN_START, Severity.DEBUG, turn=state.turn)
    if state.turn % CHECKPOINT_INTERVAL_TURNS == 0 and state.turn < state.config.iteration_warning:
        message = f"{state.turn} turns so far. Review: what is done, and what is left to do?"
        emit_event(host, TASK_CHECKPOINT, turn=state.turn, message=message)
    delivered = deliver_notices(
        host, step.emit, InjectionPoint.IMMEDIATE, InjectionPoint.TURN_START
    )
    put_notices_on_blackboard(bb, host, [*warnings, *delivered])
    return True


def _emit_context_size(host: RunContext, step: Step) -> None:
    step.emit(
        ContextUpdateChunk(
            context_tokens=host.transcript.tokens,
            max_context_tokens=host.chosen_model.context_size,
        )
    )


def _exclude_downtime(state: AgentState, downtime: float) -> AgentState:
    """Exclude the time when no process ran it; each period is subtracted once."""
    before = state.downtime_seconds
    if downtime <= before:
        return state
    return replace(state.with_pause(downtime - before), downtime_seconds=downtime)


def _warning_to_notice(host: RunContext, step: Step, warning: TurnWarning) -> notices.Notice:
    """Show a warning of the decision tree, and return it as a notice for the model."""
    if not host.is_subagent:
        step.emit(warning.chunk())
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
    """Detect repeated tool calls; the model gets one warning per run."""
    calls = convert(bb["answer"], AnswerRecord).calls
    detector, pattern = convert(bb["loop"], LoopDetector).observe(calls)
    bb["loop"] = to_builtins(detector)
    if pattern:
        emit_event(host, AGENT_LOOP_DETECTED, Severity.WARNING, pattern=pattern[:1000])


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


@leaf("oracle.end_session", reads=("failure", "state"))
def end_session(bb: Blackboard, host: RunContext) -> None:
    """Emit the event for the end of the run, with its status and the reason."""
    failure = bb.get("failure")
    reason = termination_reason(bb, host, end_reason=bb["_status"])
    host.notifications.has_ended = True
    emit_event(
        host,
        SESSION_END,
        ended=bb["_status"],
        finish=finish_of(reason, is_refusal=host.has_refused),
        termination_reason=reason,
        error=failure["code"] if failure else None,
        turns=len(host.turns) + (host.final_answer is not None),
        subagent_turns=host.subagent_turns,
        model=host.answered_by[1],
    )


def termination_reason(bb: Blackboard, host: RunContext, *, end_reason: str) -> str:
    """Return why a run ended, by the blackboard and the end reason of its tree."""
    if end_reason == CANCELLED:
        return CANCELLED
    if bb.get("failure") is not None:
        return ERROR
    if end_reason == OUT_OF_TIME:
        return TIMEOUT
    if end_reason != SUCCESS.value:
        return ERROR
    state: Mapping[str, Any] = bb.get("state") or {}
    if reason := state.get("termination_reason"):
        return reason
    return MAX_TOKENS if host.finish_reason == FinishReason.LENGTH.value else FINISHED
