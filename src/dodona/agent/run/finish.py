"""The end of a run: how large it has become, its last chunks, and what is kept of it."""

from __future__ import annotations

from collections.abc import Callable
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
from dodona.core.ports.journal import Journal, StepRecord, StepStart
from dodona.core.ports.model import FinishReason


class TokenSizes(NamedTuple):
    run_tokens: int  # tokens of this run, as later ones will read it
    context_tokens: int  # what the context holds then


async def finish_run(host: RunContext, result: RunResult) -> tuple[EndReceipt, History]:
    """Write the end, then show it; what a question that follows will begin with."""
    await _store_late_events(host)
    sizes = _token_sizes(host, result)
    last = [host.feed.assign_seq(body) for body in _final_chunk_bodies(host, result, sizes)]
    exchange = result.exchange
    insight = extract_insight(host.inputs.question.content, exchange)
    fresh = _new_mentions(host.inputs.context, insight)
    cut = host.feed.chunks_after(host.turn_start_seq) if exchange.is_partial else []
    model = host.answered_by[1]
    _update_session_usage(host)
    ended = await host.journal.end(
        RunEnd(
            status=result.status,
            messages=(
                NewMessage(
                    role="assistant",
                    content=exchange.content,
                    token_count=sizes.run_tokens,
                    metadata=exchange.metadata(
                        model=model or None,
                        tokens_used=host.tokens_used,
                        last=dump_chunks((*cut, *last)),
                    ),
                    raw=exchange.raw,
                    key_insight=insight.key_insight,
                    mentioned_symbols=insight.symbols,
                    mentioned_files=insight.files,
                ),
            ),
            error=result.failure,
            model=host.chosen_model.model.name if model else "",
            context_tokens=sizes.context_tokens,
            decisions=fresh.decisions,
            mentioned_symbols=fresh.symbols,
            mentioned_files=fresh.files,
        )
    )
    host.feed.publish(last)
    question = host.inputs.question
    said = (UserText(question.content), *exchange.messages())
    return ended, host.history.extended_with(
        said, question.token_count + sizes.run_tokens, exchange.provenance
    )


def _update_session_usage(host: RunContext) -> None:
    """Let the session know how much was said in it."""
    if (key := host.inputs.session_key) is not None:
        said = host.output_tokens
        used = {"input_tokens": max(0, host.tokens_used - said), "output_tokens": said}
        sessions = host.deps.storage.sessions
        host.journal.add_to_next_commit(sessions.add_counts(host.user_id, key, messages=2, **used))


async def _store_late_events(host: RunContext) -> None:
    """What rules said when the run was over is told when the next one begins."""
    for number, event in enumerate(host.notifications.late_events):
        await host.deps.storage.notices.put(
            NewNotice(
                user_id=host.user_id,
                project_id=host.project_id,
                event=event,
                due=Deferral(DeferUntil.SESSION),
                run_id=host.claim.run_id,
                key=f"run-{host.claim.run_id}/late-{number}",
            )
        )


def _new_mentions(context: OracleContext, insight: Insight) -> Insight:
    """What of it the context does not know yet: most often nothing, which costs nothing."""
    symbols = set((context.mentioned_symbols or "").split(", "))
    files = set((context.mentioned_files or "").split(", "))
    return Insight(
        symbols=tuple(name for name in insight.symbols if name not in symbols),
        files=tuple(path for path in insight.files if path not in files),
        decisions=tuple(each for each in insight.decisions if each not in context.key_decisions),
    )


def dump_chunks(sent_chunks: tuple[StreamChunk, ...]) -> list[list[Any]]:
    return [[chunk.seq, chunk.body] for chunk in sent_chunks]


def _token_sizes(host: RunContext, result: RunResult) -> TokenSizes:
    said = host.count_tokens(result.exchange.content) + host.turn_tokens
    before = host.history.tokens + host.inputs.question.token_count
    return TokenSizes(said, min(host.inputs.context.token_budget, before + said))


def _final_chunk_bodies(
    host: RunContext, result: RunResult, sizes: TokenSizes
) -> list[dict[str, Any]]:
    if result.failure is not None:
        return [{"type": "error", "error": dict(result.failure)}]
    return [
        chunks.context_update(
            tokens=host.transcript.tokens + host.count_tokens(result.exchange.content),
            limit=host.chosen_model.context_size,
        ),
        chunks.done(
            tokens_used=host.tokens_used,
            model_used=host.answered_by[1] or host.chosen_model.model.name,
            context_id=context_id(host.claim.run_id),
            context_tokens_remaining=host.inputs.context.token_budget - sizes.context_tokens,
            finish=_finish_reason(host, result),
        ),
    ]


def _finish_reason(host: RunContext, result: RunResult) -> chunks.DoneFinish:
    if result.exchange.is_partial or host.finish_reason == FinishReason.LENGTH.value:
        return "length"
    return "refusal" if host.finish_reason == FinishReason.REFUSAL.value else "stop"


class CancelAfterReplay:
    """Calls `stop` at the first step that has not been done yet, if that is wanted by then."""

    def __init__(self, journal: Journal, *, cancel_requested: bool) -> None:
        self._journal = journal
        self._cancel_requested = cancel_requested
        self._is_live = False
        self.stop: Callable[[], None] = _noop

    def cancel(self) -> None:
        """Stop the run: now, or when it has come to where it was."""
        self._cancel_requested = True
        if self._is_live:
            self.stop()

    def begin(self, start: StepStart) -> StepRecord | None:
        record = self._journal.begin(start)
        if not self._is_live and (record is None or record.outcome_unknown):
            self._is_live = True
            if self._cancel_requested:
                self.stop()
        return record

    def finish(self, key: str, record: StepRecord) -> None:
        self._journal.finish(key, record)

    async def flush(self) -> None:
        await self._journal.flush()


def _noop() -> None:
    """Until there is a run to stop."""
