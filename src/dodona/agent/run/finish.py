"""The end of a run: its result, its final chunks, and the records to store."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from dodona.agent.conversation.exchange import Exchange
from dodona.agent.conversation.history import History
from dodona.agent.conversation.insights import Insight, extract_insight
from dodona.agent.leaves.answer import partial_exchange, show_end, timeout_warning
from dodona.agent.leaves.control import termination_reason
from dodona.agent.question import context_id
from dodona.agent.run_context.chunk_feed import ChunkFeed
from dodona.agent.run_context.context import RunContext
from dodona.agent.turn_control.decision import CANCELLED, ERROR, finish_of
from dodona.core import chunks
from dodona.core.domain.conversations.contexts import OracleContext
from dodona.core.domain.conversations.conversation import ClaimedRun, NewMessage, RunEnd, RunStatus
from dodona.core.domain.notices import Deferral, DeferUntil, NewNotice
from dodona.core.domain.provenance import Provenance
from dodona.core.domain.trust import question_marks, sort_marks
from dodona.core.errors import Cancelled, DodonaError, ErrorBody, body_from_json, to_body
from dodona.core.messages import UserText
from dodona.trees import Blackboard, Outcome
from dodona.trees.runtime.run import OUT_OF_TIME

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RunResult:
    """How a run ended, and why; its exchange and its error."""

    status: RunStatus
    termination_reason: str
    exchange: Exchange
    failure: ErrorBody | None = None


def result_of(context: RunContext, outcome: Outcome) -> RunResult:
    """Return the result of a run whose tree has ended."""
    bb = outcome.blackboard
    failure: Mapping[str, Any] | None = bb.get("failure")
    reason = termination_reason(bb, context, end_reason=outcome.end_reason)
    if outcome.end_reason == OUT_OF_TIME and failure is None:
        _stop_at_timeout(context, bb)
    exchange = context.exchange or partial_exchange(
        context, stopped=bb.get("stopped") or "", failure=failure
    )
    if outcome.end_reason == CANCELLED:
        cancelled = to_body(Cancelled("the run was cancelled."))
        return RunResult(RunStatus.CANCELLED, reason, exchange, cancelled)
    if failure is None and reason == ERROR:
        message = (outcome.error or {}).get("message", "the tree failed.")
        failure = {"code": "tree_failed", "message": message}
    if failure is not None:
        return RunResult(RunStatus.FAILED, ERROR, exchange, body_from_json(failure))
    return RunResult(RunStatus.SUCCEEDED, reason, exchange)


def _stop_at_timeout(context: RunContext, bb: Blackboard) -> None:
    """Show that the time is up, for a tree that has not ended by itself."""
    end = timeout_warning(bb, context)
    show_end(context, context.feed.append, end)
    context.exchange = partial_exchange(context, stopped=end.text)


def failed_result(
    claimed: ClaimedRun, error: Exception, *, feed: ChunkFeed, context: RunContext | None = None
) -> RunResult:
    """Return the result of a run that could not start or resume, or that hit a bug.

    The text that was shown is kept, also if an earlier attempt has shown it.
    """
    if isinstance(error, DodonaError):
        failure = to_body(error)
    else:
        _log.exception("run %s failed with an unexpected error", claimed.run_id, exc_info=error)
        hint = "See the server log."
        failure = ErrorBody(code="internal", message="internal error in Dodona.", hint=hint)
    if context is not None:
        exchange = partial_exchange(context, failure={"message": failure.message})
        return RunResult(RunStatus.FAILED, ERROR, exchange, failure)
    shown = feed.text()
    text = shown if shown.strip() else f"No answer: {failure.message}"
    provenance = Provenance(question_marks(claimed.origin, claimed.session_key))
    exchange = Exchange(text, None, (), is_partial=True, provenance=provenance)
    return RunResult(RunStatus.FAILED, ERROR, exchange, failure)


async def finish_run(context: RunContext, result: RunResult) -> tuple[float | None, History]:
    """Store the end of a run, then publish it.

    Returns when the conversation was updated, which is None if its head was moved elsewhere, and
    the history for the next question.
    """
    context.read_results()  # the exchange has them, also those that the model has not read
    await _store_late_events(context)
    inputs, oracle_context = context.inputs, context.inputs.context
    # Whatever ended the run, and with the marks of the history: the answer may outlive the history.
    exchange = replace(result.exchange, provenance=_provenance(context, result.exchange))
    run_tokens = context.count_tokens(exchange.text_after_turns) + context.turn_tokens
    tokens_before = context.history.tokens + inputs.question.token_count
    context_tokens = min(oracle_context.token_budget, tokens_before + run_tokens)
    tokens_left = oracle_context.token_budget - context_tokens
    last = [*map(context.feed.assign_seq, _final_chunks(context, result, tokens_left))]
    insight = extract_insight(inputs.question.content, exchange)
    mentions = _new_mentions(oracle_context, insight)
    partial_chunks = (
        context.feed.chunks_after(context.turn_start_seq) if exchange.is_partial else []
    )
    model = context.answered_by[1]
    updated_at = await context.journal.end(
        RunEnd(
            status=result.status,
            termination_reason=result.termination_reason,
            finish=finish_of(result.termination_reason, is_refusal=context.has_refused),
            messages=(
                NewMessage(
                    role="assistant",
                    content=exchange.content,
                    token_count=run_tokens,
                    metadata=exchange.metadata(
                        model=model or None,
                        tokens_used=context.usage.tokens,
                        last=[*partial_chunks, *last],
                    ),
                    raw=exchange.raw,
                    key_insight=insight.key_insight,
                    mentioned_symbols=insight.symbols,
                    mentioned_files=insight.files,
                ),
            ),
            error=result.failure,
            model=context.chosen_model.model.name if model else "",
            context_tokens=context_tokens,
            decisions=mentions.decisions,
            mentioned_symbols=mentions.symbols,
            mentioned_files=mentions.files,
            marks=context.marks,
        )
    )
    context.feed.publish(last)
    messages = (UserText(inputs.question.content), *exchange.messages())
    return updated_at, context.history.extended_with(
        messages, inputs.question.token_count + run_tokens, exchange.provenance
    )


def _provenance(context: RunContext, exchange: Exchange) -> Provenance:
    return Provenance.of(
        context.sources,
        context.marks,
        is_private=context.has_read_private,
        urls=context.found_urls,
        shown=context.shown if exchange.turns else (),  # without turns, no later run sees them
    )


async def _store_late_events(context: RunContext) -> None:
    """Store notices that rules sent after the last turn; the next session delivers them."""
    for number, event in enumerate(context.notifications.events_after_end):
        await context.deps.storage.notices.put(
            NewNotice(
                user_id=context.user_id,
                project_id=context.project_id,
                event=event,
                due=Deferral(DeferUntil.SESSION),
                run_id=context.run_id,
                key=f"run-{context.run_id}/late-{number}",
            )
        )


def _new_mentions(oracle_context: OracleContext, insight: Insight) -> Insight:
    """The part of an insight that the context does not have yet; usually empty."""
    symbols = set((oracle_context.mentioned_symbols or "").split(", "))
    files = set((oracle_context.mentioned_files or "").split(", "))
    decisions = oracle_context.key_decisions
    return Insight(
        symbols=tuple(name for name in insight.symbols if name not in symbols),
        files=tuple(path for path in insight.files if path not in files),
        decisions=tuple(each for each in insight.decisions if each not in decisions),
    )


def _final_chunks(
    context: RunContext, result: RunResult, context_tokens_remaining: int
) -> list[chunks.AnyChunk]:
    if result.failure is not None:
        return [chunks.ErrorChunk(result.failure)]
    finish = finish_of(result.termination_reason, is_refusal=context.has_refused)
    assert finish is not None  # it succeeded
    answer_tokens = context.count_tokens(result.exchange.text_after_turns)
    return [
        chunks.ContextUpdateChunk(
            context_tokens=context.transcript.tokens + answer_tokens,
            max_context_tokens=context.chosen_model.context_size,
        ),
        chunks.DoneChunk(
            tokens_used=context.usage.tokens,
            model_used=context.answered_by[1] or context.chosen_model.model.name,
            context_id=context_id(context.run_id),
            context_tokens_remaining=context_tokens_remaining,
            finish=finish,
            termination_reason=result.termination_reason,
            untrusted=context.untrusted,
            marks=sort_marks(context.marks),
        ),
    ]
