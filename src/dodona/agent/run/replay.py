"""Chunks and answers read from the store, for ended runs and runs of other processes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from msgspec import convert

from dodona.agent.conversation.citations import Citation
from dodona.agent.question import context_id
from dodona.agent.views.exchanges import OracleAnswer, tool_calls_in
from dodona.core import chunks
from dodona.core.chunks import SEQ_PER_ATTEMPT, StreamChunk
from dodona.core.domain.conversations.conversation import RunNode, RunStatus, StoredMessage
from dodona.core.errors import Cancelled, DodonaError, StoreError, from_json
from dodona.core.ports.tools import SourceReference
from dodona.store import Store


async def load_stored_run(
    storage: Store, user_id: str, run_id: int
) -> tuple[RunNode, list[StreamChunk]]:
    """Load a run and its durable chunks, with the final chunk if it has ended."""
    run = await storage.runs.get(user_id, run_id)
    stored: list[StreamChunk] = []
    for step in await storage.journals.list_steps(user_id, run_id):
        output: Mapping[str, Any] = step.output or {}
        stored += [StreamChunk(run_id, seq, body) for seq, body in output.get("chunks", ())]
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
    stored = ((answer.metadata or {}) if answer is not None else {}).get("last", ())
    if stored:
        return [StreamChunk(run.id, seq, body) for seq, body in stored]
    # Cancelled before it started, or written before chunks were stored.
    seq = (run.attempt + 1) * chunks.SEQ_PER_ATTEMPT
    if run.status is RunStatus.SUCCEEDED and answer is not None:
        body = chunks.done(
            tokens_used=0, model_used="", context_id=context_id(run.id), context_tokens_remaining=0
        )
        return [
            StreamChunk(run.id, seq - 1, chunks.content(answer.content)),
            StreamChunk(run.id, seq, body),
        ]
    return [StreamChunk(run.id, seq, chunks.error(run_error(run)))]


def run_error(run: RunNode) -> DodonaError:
    """Return the error that ended a run."""
    return Cancelled("the run was cancelled.") if run.error is None else from_json(run.error)


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
        raise run_error(run)
    metadata: Mapping[str, Any] = answer.metadata or {}
    last: Mapping[str, Any] = metadata["last"][-1][1] if metadata.get("last") else {}
    return OracleAnswer(
        answer=answer.content,
        sources=convert(metadata.get("sources", ()), list[SourceReference]),
        citations=convert(metadata.get("citations", ()), list[Citation]),
        tool_calls=tool_calls_in(metadata),
        tokens_used=last.get("tokens_used", 0),
        model_used=last.get("model_used", ""),
        context_id=context_id(run_id),
        run_id=run_id,
        context_tokens_remaining=last.get("context_tokens_remaining", 0),
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
        by_attempt.setdefault(chunk.seq // SEQ_PER_ATTEMPT, []).append(chunk)
    replayed = by_attempt.get(1, [])
    for number in range(2, attempt + 1):
        replayed = [*_with_restart(run_id, replayed, number), *by_attempt.get(number, [])]
    return replayed


def contiguous_prefix(sent_chunks: list[StreamChunk], attempt: int) -> list[StreamChunk]:
    """Return the chunks before the first gap in an attempt; a gap is a step that has not ended."""
    expected = attempt * SEQ_PER_ATTEMPT
    for index, chunk in enumerate(sent_chunks):
        if chunk.seq > expected:
            expected += 1
            if chunk.seq != expected:
                return sent_chunks[:index]
    return sent_chunks


def _with_restart(run_id: int, sent_chunks: list[StreamChunk], attempt: int) -> list[StreamChunk]:
    valid = contiguous_prefix(sent_chunks, attempt - 1)
    last = valid[-1].seq if valid else 0
    bodies = [
        chunks.restart(last, RESTART_REASON),
        *(chunk.body for chunk in sent_chunks[len(valid) :]),
    ]
    first = attempt * SEQ_PER_ATTEMPT + 1
    return [*valid, *(StreamChunk(run_id, first + n, body) for n, body in enumerate(bodies))]
