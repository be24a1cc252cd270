"""Chunks and answers read from the store, for ended runs and runs of other processes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from dodona.agent.conversation.exchange import ExchangeRecord
from dodona.agent.views.exchanges import OracleAnswer, tool_calls_of
from dodona.core import chunks
from dodona.core.chunks import StreamChunk
from dodona.core.domain.conversations.conversation import RunNode, RunStatus, StoredMessage
from dodona.core.errors import Cancelled, ErrorBody, StoreError, from_body, to_body
from dodona.store import Store


async def load_stored_run(
    storage: Store, user_id: str, run_id: int
) -> tuple[RunNode, list[StreamChunk]]:
    """Load a run and its durable chunks, with the final chunk if it has ended."""
    run = await storage.runs.get(user_id, run_id)
    steps = await storage.journals.list_steps(user_id, run_id)
    stored = [chunk for step in steps if step.output for chunk in step.output.chunks]
    replayed = replay_chunks(run_id, stored, run.attempt)
    if not run.status.has_ended:
        return run, contiguous_prefix(replayed, run.attempt)
    answer = _answer_of(await storage.runs.messages(user_id, run_id))
    # The end stores the chunks of an interrupted turn; its steps may have some of the same.
    by_seq = {chunk.seq: chunk for chunk in (*replayed, *_final_chunks(run, answer))}
    return run, sorted(by_seq.values(), key=lambda chunk: chunk.seq)


def _answer_of(messages: list[StoredMessage]) -> StoredMessage | None:
    return next((each for each in messages if each.role == "assistant"), None)


def _final_chunks(run: RunNode, answer: StoredMessage | None) -> list[StreamChunk]:
    if answer is not None and (last := ExchangeRecord.read(answer).last):
        return [*last]
    seq = (run.attempt + 1) * chunks.SEQ_PER_ATTEMPT  # cancelled before it started
    return [StreamChunk(run.id, seq, chunks.ErrorChunk(_error_of(run)))]


def _error_of(run: RunNode) -> ErrorBody:
    return run.error or to_body(Cancelled("the run was cancelled."))


async def load_answer(storage: Store, user_id: str, run_id: int) -> OracleAnswer:
    """Return the answer of an ended run; raise its error if it has none."""
    run = await storage.runs.get(user_id, run_id)
    answer = _answer_of(await storage.runs.messages(user_id, run_id))
    if not run.status.has_ended:
        raise StoreError(
            f"run {run_id} continues, but not in this process.",
            hint=f"Check it later: dodona run show {run_id}.",
        )
    if run.status is not RunStatus.SUCCEEDED or answer is None:
        raise from_body(_error_of(run))
    record = ExchangeRecord.read(answer)
    done = record.last[-1].chunk
    assert isinstance(done, chunks.DoneChunk)  # it succeeded
    return OracleAnswer(
        answer=answer.content,
        sources=[*record.sources],
        citations=[*record.citations],
        tool_calls=tool_calls_of(record),
        tokens_used=done.tokens_used,
        model_used=done.model_used,
        context_id=done.context_id,
        run_id=run_id,
        context_tokens_remaining=done.context_tokens_remaining,
        finish=done.finish,
        termination_reason=done.termination_reason,
        untrusted=done.untrusted,
        marks=done.marks,
    )


RESTART_REASON: Final = "The process was restarted."


def replay_chunks(
    run_id: int, stored_chunks: Iterable[StreamChunk], attempt: int
) -> list[StreamChunk]:
    """Return the chunks up to an attempt in order, with a restart chunk before each new attempt.

    Only durable chunks of the attempt itself are included.
    """
    by_attempt: dict[int, list[StreamChunk]] = {}
    for chunk in sorted(stored_chunks, key=lambda chunk: chunk.seq):
        by_attempt.setdefault(chunk.seq // chunks.SEQ_PER_ATTEMPT, []).append(chunk)
    replayed = by_attempt.get(1, [])
    for number in range(2, attempt + 1):
        replayed = [*_with_restart(run_id, replayed, number), *by_attempt.get(number, [])]
    return replayed


def contiguous_prefix(sent_chunks: list[StreamChunk], attempt: int) -> list[StreamChunk]:
    """Return the chunks before the first gap in an attempt; a gap is a step that has not ended."""
    expected = attempt * chunks.SEQ_PER_ATTEMPT
    for index, chunk in enumerate(sent_chunks):
        if chunk.seq > expected:
            expected += 1
            if chunk.seq != expected:
                return sent_chunks[:index]
    return sent_chunks


def _with_restart(run_id: int, sent_chunks: list[StreamChunk], attempt: int) -> list[StreamChunk]:
    valid = contiguous_prefix(sent_chunks, attempt - 1)
    last = valid[-1].seq if valid else 0
    restart = chunks.RestartChunk(discard_after=last, reason=RESTART_REASON)
    repeated = [restart, *(each.chunk for each in sent_chunks[len(valid) :])]
    first = attempt * chunks.SEQ_PER_ATTEMPT + 1
    return [*valid, *(StreamChunk(run_id, first + n, chunk) for n, chunk in enumerate(repeated))]
