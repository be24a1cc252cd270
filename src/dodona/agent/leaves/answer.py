"""The end of a run: what it came to, why it stopped, and what is kept of it."""

from __future__ import annotations

from typing import Any, Final

from dodona.agent.conversation.citations import Citation, find_citations
from dodona.agent.conversation.citations import may_contain_citation as may_cite_in
from dodona.agent.conversation.exchange import Exchange, Turn
from dodona.agent.conversation.provenance import Provenance
from dodona.agent.events.dispatch import deliver_notices, emit_event
from dodona.agent.leaves.control import OUTPUT_LIMIT
from dodona.agent.leaves.model import EMPTY_ANSWER_TEXT
from dodona.agent.run_context.context import RunContext
from dodona.agent.run_context.registries import leaf
from dodona.agent.safety.untrusted import record_origins
from dodona.agent.turn_control import decision
from dodona.agent.turn_control.decision import TurnWarning, limit_reached_warning
from dodona.agent.turn_control.state import AgentState
from dodona.core import chunks
from dodona.core.domain.notices import InjectionPoint
from dodona.core.events import (
    BUDGET_ITERATION_EXCEEDED,
    BUDGET_TIMEOUT_EXCEEDED,
    BUDGET_TOKEN_EXCEEDED,
    Severity,
)
from dodona.core.messages import AssistantText, ToolResult, UserText
from dodona.core.ports.tools import SourceReference
from dodona.trees import Blackboard, Step

MAX_SOURCES: Final = 20
CUT_ANSWER_TEXT: Final = "The answer was cut before it began."
_CLOCK_TOLERANCE_SECONDS: Final = 0.25  # seconds: timers and clocks do not agree more closely

_LIMIT_EVENTS: Final = {
    "turns": BUDGET_ITERATION_EXCEEDED,
    "tokens": BUDGET_TOKEN_EXCEEDED,
    "seconds": BUDGET_TIMEOUT_EXCEEDED,
}


@leaf("oracle.cite_sources", step=True)
def cite_sources(bb: Blackboard, host: RunContext, step: Step) -> None:
    """Show where the answer is from, and mark what it cites and nobody has returned."""
    del bb
    for source in cited_sources(host):
        step.emit(chunks.source(source))
    unknown = [citation.target for citation in answer_citations(host) if not citation.found]
    if unknown:
        named = ", ".join(unknown)
        step.emit(
            chunks.system(
                "citation_unknown",
                f"The answer cites what no tool has returned: {named}.",
                {"citations": unknown},
            )
        )


def answer_citations(host: RunContext) -> tuple[Citation, ...]:
    """What the answer cites, and whether that was returned, in this run or before it."""
    if host.final_answer is None:
        return ()
    before = [m.text for m in host.history.messages if isinstance(m, ToolResult)]
    now = [result.text for turn in host.turns for result in turn.results]
    asked = [m.text for m in host.history.messages if isinstance(m, UserText)]
    asked.append(host.inputs.question.content)
    return tuple(
        find_citations(host.final_answer.text, tuple(host.sources), before, now, user_texts=asked)
    )


@leaf("may-cite?")
def may_cite(bb: Blackboard, host: RunContext) -> bool:
    """Is there a source to show, or anything in the answer that may be a citation?"""
    del bb
    return bool(host.sources) or (
        host.final_answer is not None and may_cite_in(host.final_answer.text)
    )


def cited_sources(host: RunContext) -> tuple[SourceReference, ...]:
    """The sources that the answer names; all that were found when it names none."""
    text = host.final_answer.text if host.final_answer is not None else ""
    # A note that was read whole says less than the lines of it that were found.
    quoted = {source.path for source in host.sources if source.excerpt}
    found = [s for s in host.sources if s.excerpt or s.path not in quoted]
    named = [source for source in found if source.path in text]
    return tuple((named or found)[:MAX_SOURCES])


@leaf("oracle.save_exchange", reads=("tool_results",), writes=("saved",))
def save_exchange(bb: Blackboard, host: RunContext) -> None:
    """Keep question and answer; it is written when the run ends, all at once."""
    _record_interrupted_turn(bb, host)
    final = host.final_answer or AssistantText(EMPTY_ANSWER_TEXT)
    host.exchange = Exchange(
        content=final.text,
        raw=final.raw,
        turns=tuple(host.turns),
        sources=cited_sources(host),
        citations=answer_citations(host),
        provenance=_provenance(host),
        notices=tuple(host.notices),
    )
    bb["saved"] = True


@leaf("oracle.save_partial", reads=("tool_results", "stopped", "failure"), writes=("saved",))
def save_partial(bb: Blackboard, host: RunContext) -> None:
    """Keep what there is of an answer that was not finished."""
    _record_interrupted_turn(bb, host)
    said = host.partial_answer.text if host.partial_answer is not None else ""
    if host.final_answer is not None:
        said = host.final_answer.text
    if not said.strip():
        failure: Any = bb["failure"]
        said = bb["stopped"] or (f"No answer: {failure['message']}" if failure else CUT_ANSWER_TEXT)
    host.exchange = Exchange(
        content=said,
        raw=None,
        turns=tuple(host.turns),
        sources=cited_sources(host),
        is_partial=True,
        provenance=_provenance(host),
        notices=tuple(host.notices),
    )
    bb["saved"] = True


def _provenance(host: RunContext) -> Provenance:
    """With what the history had read: this answer may speak for it when that is no longer there."""
    return Provenance.of(host.sources, host.untrusted_origins)


def _record_interrupted_turn(bb: Blackboard, host: RunContext) -> None:
    """A turn whose tools were stopped: what came of those that had ended is kept."""
    answer = host.pending_answer
    if answer is None or (host.turns and host.turns[-1].answer is answer):
        return
    given: dict[int, dict[str, Any]] = {kept["index"]: kept for kept in bb["tool_results"]}
    results = tuple(
        ToolResult(call.id, call.name, kept["text"], failed=kept["failed"])
        if (kept := given.get(index)) is not None
        else ToolResult(call.id, call.name, "Stopped before it had a result.", failed=True)
        for index, call in enumerate(answer.calls)
    )
    host.turns.append(Turn(answer, results))
    record_origins(host, given.values())


@leaf("oracle.explain_end", reads=("state", "failure"), writes=("failure", "stopped"), step=True)
def explain_end(bb: Blackboard, host: RunContext, step: Step) -> bool:
    """Tell why the run stopped; False when it was no limit but an error."""
    if bb["failure"] is not None:
        return False
    notice = end_warning(bb, host)
    if notice is None:
        error: Any = bb.get("_error") or {}
        said = error.get("message", "the tree ended without an answer.")
        bb["failure"] = {"code": "tree_failed", "message": said, "hint": ""}
        return False
    limit = notice.metadata.get("limit")
    if limit in _LIMIT_EVENTS:
        # Told by whoever subscribes to it: core, so it is always told.
        emit_event(
            host, _LIMIT_EVENTS[limit], Severity.ERROR, message=notice.text, **dict(notice.metadata)
        )
        deliver_notices(host, step, InjectionPoint.IMMEDIATE)
    else:
        step.emit(chunks.system(notice.system_type, notice.text, notice.metadata))
    if host.partial_answer is None or not host.partial_answer.text.strip():
        step.emit(chunks.content(notice.text))
    bb["stopped"] = notice.text
    return True


def end_warning(bb: Blackboard, host: RunContext) -> TurnWarning | None:
    """Which limit ended the work; None when it was none."""
    state = host.load_state(bb)
    reason = _end_reason(bb, state, host.journal.downtime)
    return _build_warning(reason, state, host) if reason else None


def _end_reason(bb: Blackboard, state: AgentState, downtime: float) -> str:
    if state.termination_reason:
        return state.termination_reason
    if bb.get("_exhausted"):
        return decision.MAX_ITERATIONS
    uncounted = downtime - state.extensions.get("downtime", 0.0)
    if state.elapsed_seconds - uncounted >= state.config.timeout_seconds - _CLOCK_TOLERANCE_SECONDS:
        return decision.TIMEOUT
    return ""


def _build_warning(reason: str, state: AgentState, host: RunContext) -> TurnWarning:
    config = state.config
    match reason:
        case decision.MAX_ITERATIONS:
            advice = "Ask it to go on, or raise max_iterations."
            # A tree may allow fewer than the user does.
            most = min(state.turn, config.max_iterations) or config.max_iterations
            return limit_reached_warning("turns", state.turn, most, advice)
        case decision.TOKEN_BUDGET:
            advice = "Ask it to go on, or raise token_budget."
            return limit_reached_warning("tokens", state.tokens_used, config.token_budget, advice)
        case decision.TIMEOUT:
            seconds = round(state.elapsed_seconds)
            advice = "Ask it to go on, or raise timeout_seconds."
            return limit_reached_warning("seconds", seconds, config.timeout_seconds, advice)
        case decision.NO_PROGRESS:
            return TurnWarning("no_progress", "Stopped: the same call gave the same result again.")
        case decision.ERROR_LIMIT:
            many = decision.MAX_CONSECUTIVE_ERRORS
            return TurnWarning("error_limit", f"Stopped: {many} calls of tools failed in a row.")
        case _ if reason == OUTPUT_LIMIT:
            allowed: int = host.options["max_tokens"]
            return limit_reached_warning(
                "tokens of output", host.output_tokens, allowed, "Allow more."
            )
        case _:
            return TurnWarning("limit_reached", f"Stopped: {reason}.", {"limit": reason})


@leaf("oracle.recover", writes=("failure", "stopped"), step=True)
def recover(bb: Blackboard, step: Step) -> None:
    """Say so when a tree was stuck, so that there is an answer."""
    said = "The agent got stuck and was stopped. Ask again, or look at the run's trace."
    step.emit(chunks.system("error", said, {}))
    bb["failure"] = {"code": "tree_stuck", "message": "the agent got stuck.", "hint": "Ask again."}
    bb["stopped"] = said
