"""The end of a run: sources and citations, the reason it stopped, and the exchange to store."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from msgspec import convert
from msgspec.structs import asdict

from dodona.agent.conversation.citations import Citation, find_citations, may_contain_citation
from dodona.agent.conversation.exchange import Exchange, Turn
from dodona.agent.events.dispatch import deliver_notices, emit_event
from dodona.agent.leaves.model import EMPTY_ANSWER_TEXT, PARAGRAPH_BREAK
from dodona.agent.run_context.context import RunContext
from dodona.agent.run_context.records import ToolResultRecord
from dodona.agent.safety.trust import record_reading
from dodona.agent.turn_control import decision
from dodona.agent.turn_control.decision import limit_reached_warning, output_limit_warning
from dodona.agent.turn_control.state import AgentState, TurnWarning
from dodona.core.chunks import AnyChunk, ContentChunk, SourceChunk, SystemChunk
from dodona.core.domain.notices import InjectionPoint
from dodona.core.events import (
    AGENT_ERROR_LIMIT,
    AGENT_NO_PROGRESS,
    BUDGET_ITERATION_EXCEEDED,
    BUDGET_TIMEOUT_EXCEEDED,
    BUDGET_TOKEN_EXCEEDED,
    Severity,
)
from dodona.core.messages import AssistantText, ToolResult, UserText
from dodona.core.ports.tools import SourceReference
from dodona.trees import Blackboard, Step, leaf

MAX_SOURCES: Final = 20
CUT_ANSWER_TEXT: Final = "The answer was cut off before it began."
_CLOCK_TOLERANCE_SECONDS: Final = 0.25  # between the timer and the clock

_END_EVENTS: Final = {
    decision.MAX_ITERATIONS: BUDGET_ITERATION_EXCEEDED,
    decision.TOKEN_BUDGET: BUDGET_TOKEN_EXCEEDED,
    decision.TIMEOUT: BUDGET_TIMEOUT_EXCEEDED,
    decision.NO_PROGRESS: AGENT_NO_PROGRESS,
    decision.ERROR_LIMIT: AGENT_ERROR_LIMIT,
}


@leaf("oracle.cite_sources", step=True)
def cite_sources(bb: Blackboard, host: RunContext, step: Step) -> None:
    """Show the sources of the answer, and flag citations that no tool returned."""
    del bb
    for source in cited_sources(host):
        step.emit(SourceChunk(**asdict(source)))
    unknown = [citation.target for citation in answer_citations(host) if not citation.found]
    if unknown:
        targets = ", ".join(unknown)
        step.emit(
            SystemChunk(
                system_type="citation_unknown",
                system_message=f"The answer cites sources that no tool returned: {targets}.",
                metadata={"citations": unknown},
            )
        )


def answer_citations(host: RunContext) -> tuple[Citation, ...]:
    """Return the citations of the answer, and whether a tool returned them, now or earlier."""
    if host.final_answer is None:
        return ()
    before = [m.text for m in host.history.messages if isinstance(m, ToolResult)]
    now = [result.text for turn in host.turns for result in turn.results]
    questions = [m.text for m in host.history.messages if isinstance(m, UserText)]
    questions.append(host.inputs.question.content)
    text = host.final_answer.text
    return tuple(find_citations(text, tuple(host.sources), before, now, user_texts=questions))


@leaf("may-cite?")
def may_cite(bb: Blackboard, host: RunContext) -> bool:
    """Whether there is a source to show, or a possible citation in the answer."""
    del bb
    return bool(host.sources) or (
        host.final_answer is not None and may_contain_citation(host.final_answer.text)
    )


def cited_sources(host: RunContext) -> tuple[SourceReference, ...]:
    """Return the sources that the answer names; all sources if it names none."""
    text = host.final_answer.text if host.final_answer is not None else ""
    # An excerpt is more specific than a source without one, such as a whole note.
    excerpted = {source.path for source in host.sources if source.excerpt}
    candidates = [s for s in host.sources if s.excerpt or s.path not in excerpted]
    named = [source for source in candidates if source.path in text]
    return tuple((named or candidates)[:MAX_SOURCES])


@leaf("oracle.save_exchange", reads=("tool_results",), writes=("saved",))
def save_exchange(bb: Blackboard, host: RunContext) -> None:
    """Prepare question and answer for storage; they are written when the run ends."""
    _record_interrupted_turn(bb, host)
    final = host.final_answer or AssistantText(EMPTY_ANSWER_TEXT)
    host.exchange = replace(
        _build_exchange(host, final.text), raw=final.raw, citations=answer_citations(host)
    )
    bb["saved"] = True


@leaf("oracle.save_partial", reads=("tool_results", "stopped", "failure"), writes=("saved",))
def save_partial(bb: Blackboard, host: RunContext) -> None:
    """Prepare an unfinished answer for storage."""
    _record_interrupted_turn(bb, host)
    host.exchange = partial_exchange(host, stopped=bb["stopped"], failure=bb["failure"])
    bb["saved"] = True


def partial_exchange(
    host: RunContext, *, stopped: str = "", failure: Mapping[str, Any] | None = None
) -> Exchange:
    """Return an unfinished answer, or why there is none."""
    text = ""
    if (response := host.final_answer or host.partial_answer) is not None:
        text = response.text
    if not text.strip():
        text = stopped or (f"No answer: {failure['message']}" if failure else CUT_ANSWER_TEXT)
    return replace(_build_exchange(host, text), is_partial=True)


def _build_exchange(host: RunContext, last_text: str) -> Exchange:
    """Return the exchange with all text that the user was shown, which ends with `last_text`."""
    shown = host.feed.text()
    return Exchange(
        content=shown if shown.strip() else last_text,
        raw=None,
        turns=tuple(host.turns),
        sources=cited_sources(host),
        notices=tuple(host.notices),
        last_text=last_text if shown.strip() not in ("", last_text.strip()) else None,
    )


def _record_interrupted_turn(bb: Blackboard, host: RunContext) -> None:
    """Record a turn whose tool calls were interrupted, with the results that exist."""
    answer = host.pending_answer
    if answer is None or (host.turns and host.turns[-1].answer is answer):
        return
    finished = {each.index: each for each in convert(bb["tool_results"], list[ToolResultRecord])}
    host.subagent_turns += sum(record.turns for record in finished.values())
    records = {**host.interrupted_results, **finished}
    results = tuple(
        records[index].message()
        if index in records
        else ToolResult(call.id, call.name, "Stopped before there was a result.", failed=True)
        for index, call in enumerate(answer.calls)
    )
    durations = tuple(
        records[index].duration_ms if index in records else None
        for index in range(len(answer.calls))
    )
    host.turns.append(Turn(answer, results, durations))
    record_reading(host, records.values())


@leaf(
    "oracle.explain_end",
    reads=("state", "failure"),
    writes=("failure", "state", "stopped"),
    step=True,
)
def explain_end(bb: Blackboard, host: RunContext, step: Step) -> bool:
    """Show why the run stopped. Fail if it stopped because of an error, not a limit."""
    if bb["failure"] is not None:
        return False
    warning = end_warning(bb, host)
    if warning is None:
        error: Any = bb.get("_error") or {}
        message = error.get("message", "the tree ended without an answer.")
        bb["failure"] = {"code": "tree_failed", "message": message, "hint": ""}
        return False
    show_end(host, step.emit, warning)
    host.save_state(bb, host.load_state(bb).terminated(warning.reason))
    bb["stopped"] = warning.text
    return True


@dataclass(frozen=True, slots=True)
class EndWarning:
    """Why a run ended before its answer."""

    reason: str
    warning: TurnWarning

    @property
    def text(self) -> str:
        return self.warning.text


def show_end(host: RunContext, emit: Callable[[AnyChunk], object], end: EndWarning) -> None:
    """Show why a run ended; as its answer too, if the model has given none since the last turn."""
    if (kind := _END_EVENTS.get(end.reason)) is not None:
        # A core subscriber, which cannot be disabled, turns this event into a notice.
        metadata = dict(end.warning.metadata)
        emit_event(host, kind, Severity.ERROR, message=end.text, **metadata)
        deliver_notices(host, emit, InjectionPoint.IMMEDIATE)
    else:
        emit(end.warning.chunk())
    response = host.final_answer or host.partial_answer
    if response is None or not response.text.strip():
        separator = PARAGRAPH_BREAK if host.feed.text().strip() else ""
        emit(ContentChunk(separator + end.text))


def end_warning(bb: Blackboard, host: RunContext) -> EndWarning | None:
    """Return the warning for the limit that ended the run; None if no limit did."""
    state = host.load_state(bb)
    reason = _end_reason(bb, state, host.journal.downtime_seconds)
    return EndWarning(reason, _build_warning(reason, state, host)) if reason else None


def timeout_warning(bb: Blackboard, host: RunContext) -> EndWarning:
    """Return the warning for a run that the runtime has stopped."""
    return EndWarning(decision.TIMEOUT, _build_warning(decision.TIMEOUT, host.load_state(bb), host))


def _end_reason(bb: Blackboard, state: AgentState, downtime: float) -> str:
    if state.termination_reason:
        return state.termination_reason
    if bb.get("_exhausted"):
        return decision.MAX_ITERATIONS
    uncounted = downtime - state.downtime_seconds
    if state.elapsed_seconds - uncounted >= state.config.timeout_seconds - _CLOCK_TOLERANCE_SECONDS:
        return decision.TIMEOUT
    return ""


def _build_warning(reason: str, state: AgentState, host: RunContext) -> TurnWarning:
    config = state.config
    match reason:
        case decision.MAX_ITERATIONS:
            advice = "Ask the agent to continue, or raise max_iterations."
            # A tree may allow fewer turns than the user's settings do.
            limit = min(state.turn, config.max_iterations) or config.max_iterations
            return limit_reached_warning("turns", state.turn, limit, advice)
        case decision.TOKEN_BUDGET:
            advice = "Ask the agent to continue, or raise token_budget."
            return limit_reached_warning("tokens", state.tokens_used, config.token_budget, advice)
        case decision.TIMEOUT:
            seconds = round(state.elapsed_seconds)
            advice = "Ask the agent to continue, or raise timeout_seconds."
            return limit_reached_warning("seconds", seconds, config.timeout_seconds, advice)
        case decision.NO_PROGRESS:
            text = "Stopped: the same tool call returned the same result again."
            return TurnWarning(reason, text, decision.no_progress_metadata())
        case decision.ERROR_LIMIT:
            limit = decision.MAX_FAILED_TURNS
            text = f"Stopped: every tool call failed, in {limit} turns in a row."
            values = {"current_value": state.failed_turns, "limit_value": limit}
            return TurnWarning(reason, text, {"limit": "failed turns", **values})
        case decision.MAX_TOKENS:
            max_tokens = host.options.max_tokens or 0
            return output_limit_warning(host.output_tokens, max_tokens, is_requested=True)
        case _:
            return TurnWarning("limit_reached", f"Stopped: {reason}.", {"limit": reason})


@leaf("oracle.recover", writes=("failure", "stopped"), step=True)
def recover(bb: Blackboard, step: Step) -> None:
    """Report that the tree was stuck, so that the run has an answer."""
    text = "The agent got stuck and was stopped. Ask again, or look at the trace of the run."
    step.emit(SystemChunk(system_type="error", system_message=text, metadata={}))
    bb["failure"] = {"code": "tree_stuck", "message": "the agent got stuck.", "hint": "Ask again."}
    bb["stopped"] = text
