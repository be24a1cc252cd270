"""The end of a run: its final chunks, its token sizes, and the records to store."""

from __future__ import annotations

from typing import Any, NamedTuple

from dodona.agent.conversation.history import History
from dodona.agent.conversation.insights import Insight, extract_insight
from dodona.agent.question import context_id
from dodona.agent.run.result import RunResult
from dodona.agent.run_context.context import RunContext
from dodona.core import chunks
from dodona.core.chunks import StreamChunk
from dodona.core.domain.conversations.contexts import OracleContext
from dodona.core.domain.conversations.conversation import EndReceipt, NewMessage, RunEnd
from dodona.core.domain.notices import Deferral, DeferUntil, NewNotice
from dodona.core.messages import UserText
from dodona.core.ports.model import FinishReason


class TokenSizes(NamedTuple):
    """Token counts of a run and of its context."""

    run_tokens: int  # of this run, as later runs read it
    context_tokens: int  # of the context, including this run


async def finish_run(context: RunContext, result: RunResult) -> tuple[EndReceipt, History]:
    """Store the end of a run, then publish it. Return also the history for the next question."""
    await _store_late_events(context)
    sizes = _token_sizes(context, result)
    last = [context.feed.assign_seq(body) for body in _final_chunk_bodies(context, result, sizes)]
    exchange = result.exchange
    insight = extract_insight(context.inputs.question.content, exchange)
    mentions = _new_mentions(context.inputs.context, insight)
    partial_chunks = (
        context.feed.chunks_after(context.turn_start_seq) if exchange.is_partial else []
    )
    model = context.answered_by[1]
    _update_session_usage(context)
    receipt = await context.journal.end(
        RunEnd(
            status=result.status,
            messages=(
                NewMessage(
                    role="assistant",
                    content=exchange.content,
                    token_count=sizes.run_tokens,
                    metadata=exchange.metadata(
                        model=model or None,
                        tokens_used=context.tokens_used,
                        last=dump_chunks((*partial_chunks, *last)),
                    ),
                    raw=exchange.raw,
                    key_insight=insight.key_insight,
                    mentioned_symbols=insight.symbols,
                    mentioned_files=insight.files,
                ),
            ),
            error=result.failure,
            model=context.chosen_model.model.name if model else "",
            context_tokens=sizes.context_tokens,
            decisions=mentions.decisions,
            mentioned_symbols=mentions.symbols,
            mentioned_files=mentions.files,
        )
    )
    context.feed.publish(last)
    question = context.inputs.question
    messages = (UserText(question.content), *exchange.messages())
    return receipt, context.history.extended_with(
        messages, question.token_count + sizes.run_tokens, exchange.provenance
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
                run_id=context.claim.run_id,
                key=f"run-{context.claim.run_id}/late-{number}",
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


def dump_chunks(sent_chunks: tuple[StreamChunk, ...]) -> list[list[Any]]:
    """Return chunks as JSON pairs of sequence number and body."""
    return [[chunk.seq, chunk.body] for chunk in sent_chunks]


def _token_sizes(context: RunContext, result: RunResult) -> TokenSizes:
    run_tokens = context.count_tokens(result.exchange.content) + context.turn_tokens
    before = context.history.tokens + context.inputs.question.token_count
    return TokenSizes(run_tokens, min(context.inputs.context.token_budget, before + run_tokens))


def _final_chunk_bodies(
    context: RunContext, result: RunResult, sizes: TokenSizes
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
            context_id=context_id(context.claim.run_id),
            context_tokens_remaining=context.inputs.context.token_budget - sizes.context_tokens,
            finish=_finish_reason(context, result),
        ),
    ]


def _finish_reason(context: RunContext, result: RunResult) -> chunks.DoneFinish:
    if result.exchange.is_partial or context.finish_reason == FinishReason.LENGTH.value:
        return "length"
    return "refusal" if context.finish_reason == FinishReason.REFUSAL.value else "stop"
