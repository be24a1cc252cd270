"""The journal of one run: the requests and the results of its steps.

Records are collected and written together: at a barrier, with the next commit of the run, or
shortly after an effect has ended. Every write checks that this process still owns the run.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Collection, Coroutine, Sequence
from time import time
from typing import Any, TypeVar

from dodona.core.chunks import StreamChunk
from dodona.core.domain.conversations.conversation import Claim, RunEnd, StepRow
from dodona.core.errors import RunFenced
from dodona.core.ports.journal import Effect, StepRecord, StepStart
from dodona.store.conversations.nodes import find_node
from dodona.store.db.database import Database, StoreOperation, Transaction, log_orphaned
from dodona.store.db.text import Redact
from dodona.store.runs.finish import check_end, end_run, redact_end
from dodona.store.runs.runs import check_claim
from dodona.store.runs.steps import (
    NO_PAST_ATTEMPTS,
    PastAttempts,
    PendingWrites,
    encode_record,
    expire_payloads,
    read_past_attempts,
    read_steps,
    save_pins,
)

T = TypeVar("T")

_FLUSH_DELAY_SECONDS = 0.02  # after a call to an external system has ended


class JournalTasks:
    """Tasks of journals that no caller waits for. They end before the store does."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False

    def start(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if not self._is_closed:
            task = asyncio.get_running_loop().create_task(work())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        self._is_closed = True
        await asyncio.gather(*self._tasks)


class RunJournal:
    """The steps of a run while this process drives it. Created by `Journals.open`."""

    def __init__(
        self,
        database: Database,
        claim: Claim,
        *,
        redact: Redact,
        background: JournalTasks,
        on_run_ended: Callable[[Claim], None],
        past: PastAttempts = NO_PAST_ATTEMPTS,
    ) -> None:
        self._database = database
        self._background = background
        self._claim = claim
        self._redact = redact
        self._on_run_ended = on_run_ended
        self._past = past
        self._open_steps: dict[str, dict[str, Any]] = {}  # steps in progress
        self._pending = PendingWrites()
        self._end_operations: list[StoreOperation[Any]] = []
        self._record_count = self._durable_count = 0  # records so far, and on disk
        self._write_lock = asyncio.Lock()
        # A write whose caller was cancelled.
        self._orphaned_write: asyncio.Future[None] | None = None
        self._flush_timer: asyncio.TimerHandle | None = None
        self._is_flushing = False
        self._error: BaseException | None = None

    @property
    def downtime_seconds(self) -> float:
        """Seconds between the attempts so far in which no process drove the run."""
        return self._past.downtime

    def past_seconds_of(self, leaves: Collection[str]) -> float:
        """Return the seconds in which steps of these leaves ran in earlier attempts."""
        return self._past.seconds_of(leaves)

    def past_chunks(self) -> Sequence[StreamChunk]:
        """Return the chunks of finished steps of earlier attempts, ordered by `seq`."""
        return self._past.chunks()

    # -- records ----------------------------------------------------------------------------------

    def begin(self, start: StepStart) -> StepRecord | None:
        self._raise_if_unusable()
        row: dict[str, Any] = {
            "run_id": self._claim.run_id,
            "key": start.key,
            "leaf": start.leaf,
            "effect": start.effect.value,
            "attempt": self._claim.attempt,
            "request_hash": self._hash_request(start.request),
            "status": "started",
            "payload": None,
            "started_at": time(),
            "ended_at": None,
        }
        record = self._past.resolve_step(row)
        if record is None or record.outcome_unknown:
            self._open_steps[start.key] = row
            if start.effect is not Effect.NONE:
                self._add_pending(row, is_start=True)
        return record

    def _hash_request(self, request: str) -> str:
        """Hash the redacted request: after a resume, the request is redacted too."""
        if not request:
            return ""
        text = self._redact(request).encode("utf-8", "replace")
        return hashlib.blake2b(text, digest_size=16).hexdigest()

    def finish(self, key: str, record: StepRecord) -> None:
        self._raise_if_unusable()
        row = self._open_steps[key].copy()
        row["status"] = "succeeded" if record.succeeded else "failed"
        row["payload"] = encode_record(key, record, self._redact)
        row["ended_at"] = time()
        self._add_pending(row)
        # Persist paid answers soon, so that a crash during slow tools does not repeat the call.
        if row["effect"] != Effect.NONE.value or row["request_hash"]:
            self._schedule_flush()

    def _add_pending(self, row: dict[str, Any], *, is_start: bool = False) -> None:
        self._record_count += 1
        self._pending.add(row, is_start=is_start)

    def pin(self, pins: bytes) -> None:
        self._raise_if_unusable()
        self._pending.pins = pins

    def add_to_next_commit(self, operation: StoreOperation[Any]) -> None:
        self._raise_if_unusable()
        self._pending.operations.append(operation)

    def add_to_end(self, operation: StoreOperation[Any]) -> None:
        """Run an operation in the transaction that ends the run, and in no earlier one."""
        self._raise_if_unusable()
        self._end_operations.append(operation)

    # -- writes -----------------------------------------------------------------------------------

    async def flush(self) -> None:
        self._raise_if_unusable()
        target_count = self._record_count
        if self._durable_count >= target_count:
            return
        async with self._write_lock:
            if self._durable_count < target_count:  # else another flush included our records
                await self._commit(_no_operation)

    async def commit(self, operation: StoreOperation[T]) -> T:
        self._raise_if_unusable()
        async with self._write_lock:
            return await self._commit(operation)

    async def _commit(self, operation: StoreOperation[T]) -> T:
        claim = self._claim

        def write(tx: Transaction, pending: PendingWrites) -> T:
            if pending.pins is None:
                check_claim(tx, claim)
            else:
                save_pins(tx, claim, pending.pins)
            pending.write(tx)
            return operation(tx)

        return await self._write(write)

    async def end(self, run_end: RunEnd) -> float | None:
        """End the run. Return when the conversation was updated; None if its head was moved."""
        self._raise_if_unusable()
        check_end(run_end)
        run_end = redact_end(run_end, self._redact)
        async with self._write_lock:
            self._pending.operations += self._end_operations
            self._end_operations = []
            updated_at = await self._write(
                lambda tx, pending: end_run(tx, self._claim, run_end, pending=pending), soft=False
            )
        self._on_run_ended(self._claim)
        return updated_at

    async def _write(
        self, operation: Callable[[Transaction, PendingWrites], T], *, soft: bool = True
    ) -> T:
        """Write the pending records together with an operation. One write at a time.

        Records are dropped only when they are durable: until then they are part of every write.
        """
        if self._orphaned_write is not None:
            await asyncio.wait([self._orphaned_write])
            self._orphaned_write = None
        self._raise_if_unusable()
        self._cancel_flush()
        pending, count = self._pending.copy(), self._record_count
        orphaned = asyncio.get_running_loop().create_future()
        future = self._database.submit(
            lambda tx: operation(tx, pending),
            soft=soft and not pending.started_effects,
            on_orphaned=lambda _, error: self._on_orphaned(orphaned, pending, count, error),
        )
        try:
            result = await future
        except asyncio.CancelledError:
            if future.cancelled():
                self._orphaned_write = orphaned
            elif future.exception() is None:  # it was committed just before the cancellation
                self._mark_durable(pending, count)
            raise
        self._mark_durable(pending, count)
        return result

    def _on_orphaned(
        self,
        done: asyncio.Future[None],
        pending: PendingWrites,
        count: int,
        error: BaseException | None,
    ) -> None:
        """Record the outcome of a write whose caller no longer waits."""
        if error is None:
            self._mark_durable(pending, count)
        log_orphaned(None, error)
        done.set_result(None)

    def _mark_durable(self, pending: PendingWrites, count: int) -> None:
        self._durable_count = count
        self._pending.drop(pending)

    def stop_recording(self) -> None:
        self._cancel_flush()
        self._error = RunFenced(
            f"this process has released run {self._claim.run_id}: another one may continue it."
        )

    def _schedule_flush(self) -> None:
        if self._flush_timer is None and not self._is_flushing:
            self._flush_timer = asyncio.get_running_loop().call_later(
                _FLUSH_DELAY_SECONDS, self._start_flush
            )

    def _cancel_flush(self) -> None:
        if self._flush_timer is not None:
            self._flush_timer.cancel()
            self._flush_timer = None

    def _start_flush(self) -> None:
        self._flush_timer = None
        self._is_flushing = True
        self._background.start(self._flush_in_background)

    async def _flush_in_background(self) -> None:
        """Flush without a caller: a failure is raised by the next use of the journal."""
        try:
            await self.flush()
        except Exception as error:  # noqa: BLE001 - last resort: nothing above catches it
            self._error = self._error or error
        finally:
            self._is_flushing = False

    def _raise_if_unusable(self) -> None:
        if self._error is not None:
            raise self._error


def _no_operation(_: Transaction) -> None:
    """Write only the pending records."""


class Journals:
    """The journals of all runs. `on_run_ended` is called for each run that has ended."""

    def __init__(
        self, database: Database, *, redact: Redact, on_run_ended: Callable[[Claim], None]
    ) -> None:
        self._database = database
        self._redact = redact
        self._on_run_ended = on_run_ended
        self._background = JournalTasks()

    async def open(self, claim: Claim) -> RunJournal:
        """Open the journal of a run that this process has claimed, with its earlier attempts."""
        past = NO_PAST_ATTEMPTS
        if claim.is_resumed:
            past = await self._database.read(lambda tx: read_past_attempts(tx, claim))
        return RunJournal(
            self._database,
            claim,
            redact=self._redact,
            background=self._background,
            on_run_ended=self._on_run_ended,
            past=past,
        )

    async def list_steps(self, user_id: str, run_id: int) -> list[StepRow]:
        """Return the steps of a run for inspection, in the order in which they started."""

        def read(tx: Transaction) -> list[StepRow]:
            find_node(tx, user_id, run_id)
            return read_steps(tx, run_id)

        return await self._database.read(read)

    async def close(self) -> None:
        """Wait for writes in progress; journals start no further background writes."""
        await self._background.close()

    async def delete_step_results(self, before: float) -> int:
        """Delete the step results of runs that ended before a time; messages stay."""
        return await self._database.write(lambda tx: expire_payloads(tx, before))
