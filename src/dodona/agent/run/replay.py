"""What a run has said, read from the store: of one that has ended, or that another drives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from dodona.agent.question import OracleAnswer, context_id
from dodona.agent.views.exchanges import tool_calls_json
from dodona.core import chunks
from dodona.core.chunks import SEQ_PER_ATTEMPT, StreamChunk
from dodona.core.domain.conversations.conversation import RunNode, RunStatus, StoredMessage
from dodona.core.errors import Cancelled, DodonaError, StoreError, from_json
from dodona.store import Store


@dataclass(frozen=True, slots=True)
class StoredRun:
    """What is durable of a run by now."""

    run: RunNode
    chunks: list[StreamChunk]

    @property
    def has_ended(self) -> bool:
        return self.run.status.has_ended


async def load_stored_run(storage: Store, user_id: str, run_id: int) -> StoredRun:
    """All chunks that the store has; of a run that has ended, its last one among them."""
    run = await storage.runs.get(user_id, run_id)
    found: list[StreamChunk] = []
    for step in await storage.journals.steps(user_id, run_id):
        left: Mapping[str, Any] = step.output or {}
        found += [StreamChunk(run_id, seq, body) for seq, body in left.get("chunks", ())]
    told = replay_chunks(run_id, found, run.attempt)
    if not run.status.has_ended:
        return StoredRun(run, contiguous_prefix(told, run.attempt))
    answer = _answer_of(await storage.runs.messages(user_id, run_id))
    # Of a turn that was cut, what it said is kept with the end; some of that its steps have too.
    whole = {chunk.seq: chunk for chunk in (*told, *_final_chunks(run, answer))}
    return StoredRun(run, sorted(whole.values(), key=lambda chunk: chunk.seq))


def _answer_of(messages: list[StoredMessage]) -> StoredMessage | None:
    return next((each for each in messages if each.role == "assistant"), None)


def _final_chunks(run: RunNode, answer: StoredMessage | None) -> list[StreamChunk]:
    kept = ((answer.metadata or {}) if answer is not None else {}).get("last", ())
    if kept:
        return [StreamChunk(run.id, seq, body) for seq, body in kept]
    # It was cancelled before it began, or is older than its chunks.
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
    """The error that ended a run."""
    return Cancelled("the run was cancelled.") if run.error is None else from_json(run.error)


async def load_answer(storage: Store, user_id: str, run_id: int) -> OracleAnswer:
    """The answer of a run that has ended; its error when it has none."""
    run = await storage.runs.get(user_id, run_id)
    answer = _answer_of(await storage.runs.messages(user_id, run_id))
    if not run.status.has_ended:
        raise StoreError(
            f"run {run_id} goes on, but not in this process.",
            hint=f"Look at it later: dodona run show {run_id}.",
        )
    if run.status is not RunStatus.SUCCEEDED or answer is None:
        raise run_error(run)
    metadata: Mapping[str, Any] = answer.metadata or {}
    last: Mapping[str, Any] = metadata["last"][-1][1] if metadata.get("last") else {}
    return OracleAnswer(
        answer=answer.content,
        sources=tuple(metadata.get("sources", ())),
        citations=tuple(metadata.get("citations", ())),
        tool_calls=tuple(tool_calls_json(metadata)),
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
    """All that was shown up to an attempt, in order; of the attempt itself what is durable."""
    own: dict[int, list[StreamChunk]] = {}
    for chunk in sorted(stored_chunks, key=lambda chunk: chunk.seq):
        own.setdefault(chunk.seq // SEQ_PER_ATTEMPT, []).append(chunk)
    told = own.get(1, [])
    for number in range(2, attempt + 1):
        told = [*_with_restart(run_id, told, number), *own.get(number, [])]
    return told


def contiguous_prefix(sent_chunks: list[StreamChunk], attempt: int) -> list[StreamChunk]:
    """Up to the first number that is missing in an attempt: a step that has not ended."""
    expected = attempt * SEQ_PER_ATTEMPT
    for index, chunk in enumerate(sent_chunks):
        if chunk.seq > expected:
            expected += 1
            if chunk.seq != expected:
                return sent_chunks[:index]
    return sent_chunks


def _with_restart(run_id: int, sent_chunks: list[StreamChunk], attempt: int) -> list[StreamChunk]:
    still = contiguous_prefix(sent_chunks, attempt - 1)
    last = still[-1].seq if still else 0
    again = [
        chunks.restart(last, RESTART_REASON),
        *(chunk.body for chunk in sent_chunks[len(still) :]),
    ]
    first = attempt * SEQ_PER_ATTEMPT + 1
    return [*still, *(StreamChunk(run_id, first + n, body) for n, body in enumerate(again))]
