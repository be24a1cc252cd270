"""The end of a run: its result, its final chunks, and the records to store."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dodona.agent.conversation.exchange import Exchange
from dodona.agent.conversation.history import History
from dodona.agent.conversation.insights import Insight, extract_insight
from dodona.agent.leaves.answer import CUT_ANSWER_TEXT
from dodona.agent.question import context_id
from dodona.agent.run_context.context import RunContext
from dodona.core import chunks
from dodona.core.chunks import StreamChunk
from dodona.core.domain.conversations.contexts import OracleContext
from dodona.core.domain.conversations.conversation import NewMessage, RunEnd, RunStatus
from dodona.core.domain.notices import Deferral, DeferUntil, NewNotice
from dodona.core.errors import Cancelled, DodonaError, as_json
from dodona.core.messages import UserText
from dodona.core.ports.model import FinishReason
from dodona.trees import Outcome

CANCELLED: Final = "cancelled"  # the end reason of a cancelled tree

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RunResult:
    """Status and exchange of a run. `failure` is the error as JSON; None on success."""

    status: RunStatus
    exchange: Exchange
    failure: Mapping[str, Any] | None = None


def result_of(context: RunContext, outcome: Outcome) -> RunResult:
    """Return the result of a run whose tree has ended."""
    exchange = context.exchange or Exchange(
        CUT_ANSWER_TEXT, None, tuple(context.turns), is_partial=True
    )
    if outcome.end_reason == CANCELLED:
        cancelled = as_json(Cancelled("the run was cancelled."))["error"]
        return RunResult(RunStatus.CANCELLED, exchange, cancelled)
    failure: Mapping[str, Any] | None = outcome.blackboard.get("failure")
    if failure is None and not outcome.succeeded:
        message = (outcome.error or {}).get("message", "the tree failed.")
        failure = {"code": "tree_failed", "message": message, "hint": ""}
    if failure is not None:
        return RunResult(RunStatus.FAILED, exchange, failure)
    return RunResult(RunStatus.SUCCEEDED, exchange)


def failed_result(run_id: int, error: Exception) -> RunResult:
    """Return the result of a run that could not start, or that hit a bug."""
    if isinstance(error, DodonaError):
        failure = as_json(error)["error"]
    else:
        _log.exception("run %s failed with an unexpected error", run_id, exc_info=error)
        hint = "See the server log."
        failure = {"code": "internal", "message": "internal error in Dodona.", "hint": hint}
    text = f"No answer: {failure['message']}"
    return RunResult(RunStatus.FAILED, Exchange(text, None, (), is_partial=True), failure)


async def finish_run(context: RunContext, result: RunResult) -> tuple[float | None, History]:
    """Store the end of a run, then publish it.

    Returns when the conversation was updated, which is None if its head was moved elsewhere, and
    the history for the next question.
    """
    await _store_late_events(context)
    inputs, exchange, oracle_context = context.inputs, result.exchange, context.inputs.context
    run_tokens = context.count_tokens(exchange.content) + context.turn_tokens
    tokens_before = context.history.tokens + inputs.question.token_count
    context_tokens = min(oracle_context.token_budget, tokens_before + run_tokens)
    tokens_left = oracle_context.token_budget - context_tokens
    last = [context.feed.assign_seq(body) for body in _final_bodies(context, result, tokens_left)]
    insight = extract_insight(inputs.question.content, exchange)
    mentions = _new_mentions(oracle_context, insight)
    partial_chunks = (
        context.feed.chunks_after(context.turn_start_seq) if exchange.is_partial else []
    )
    model = context.answered_by[1]
    _update_session_usage(context)
    updated_at = await context.journal.end(
        RunEnd(
            status=result.status,
            messages=(
                NewMessage(
                    role="assistant",
                    content=exchange.content,
                    token_count=run_tokens,
                    metadata=exchange.metadata(
                        model=model or None,
                        tokens_used=context.tokens_used,
                        last=dump_chunks([*partial_chunks, *last]),
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
        )
    )
    context.feed.publish(last)
    messages = (UserText(inputs.question.content), *exchange.messages())
    return updated_at, context.history.extended_with(
        messages, inputs.question.token_count + run_tokens, exchange.provenance
    )


def _update_session_usage(context: RunContext) -> None:
    """Add the run's messages and tokens to the counts of its session."""
    if (key := context.inputs.session_key) is not None:
        output = context.output_tokens
        usage = {"input_tokens": max(0, context.tokens_used - output), "output_tokens": output}
        sessions = context.deps.storage.sessions
        context.journal.add_to_next_commit(
            sessions.add_counts(context.user_id, key, messages=2, **usage)
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


def dump_chunks(sent_chunks: Sequence[StreamChunk]) -> list[list[Any]]:
    """Return chunks as JSON pairs of sequence number and body."""
    return [[chunk.seq, chunk.body] for chunk in sent_chunks]


def _final_bodies(
    context: RunContext, result: RunResult, context_tokens_remaining: int
) -> list[dict[str, Any]]:
    if result.failure is not None:
        return [{"type": "error", "error": dict(result.failure)}]
    return [
        chunks.context_update(
            tokens=context.transcript.tokens + context.count_tokens(result.exchange.content),
            limit=context.chosen_model.context_size,
        ),
        chunks.done(
            tokens_used=context.tokens_used,
            model_used=context.answered_by[1] or context.chosen_model.model.name,
            context_id=context_id(context.run_id),
            context_tokens_remaining=context_tokens_remaining,
            finish=_finish_reason(context, result),
        ),
    ]


def _finish_reason(context: RunContext, result: RunResult) -> chunks.DoneFinish:
    if result.exchange.is_partial or context.finish_reason == FinishReason.LENGTH.value:
        return "length"
    return "refusal" if context.finish_reason == FinishReason.REFUSAL.value else "stop"
