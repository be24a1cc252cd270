"""The journal of one run: what its steps were asked and what they left.

Notes are gathered and written together: when a barrier asks for it, with the next thing that the
run commits, or a moment after an effect has ended. Every write checks that the run is still ours.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Coroutine, Sequence
from time import time
from typing import Any, TypeVar

from dodona.core.domain.conversations.conversation import Claim, EndReceipt, RunEnd, StepRow
from dodona.core.errors import Fenced
from dodona.core.ports.journal import Effect, StepRecord, StepStart
from dodona.store.conversations.nodes import find_node
from dodona.store.db.database import Database, Operation, Transaction, log_lost
from dodona.store.db.text import Redact, changed, to_json
from dodona.store.runs.finish import check_ending, end_run, hidden_ending
from dodona.store.runs.pending import PendingWrites, pin
from dodona.store.runs.runs import check_claim
from dodona.store.runs.steps import NO_PAST, Past, encoded, expire, read_past, read_steps

T = TypeVar("T")

_SOON = 0.02  # seconds after something has ended that was asked of others


class Background:
    """What journals do while nobody waits for it. It ends before the store does."""

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
    """A run's steps, while one process drives it. Made by `Journals.open`."""

    def __init__(
        self,
        database: Database,
        claim: Claim,
        *,
        hide: Redact,
        background: Background,
        release: Callable[[Claim], None],
        past: Past = NO_PAST,
    ) -> None:
        self._database = database
        self._background = background
        self._claim = claim
        self._hide = hide
        self._release = release
        self._past = past
        self._open: dict[str, dict[str, Any]] = {}  # steps that have begun
        self._notes = PendingWrites()
        self._noted = self._durable = 0  # how many notes were made, and are on the disk
        self._writing = asyncio.Lock()
        self._lost: asyncio.Future[None] | None = None  # a write whose caller was cancelled
        self._soon: asyncio.TimerHandle | None = None
        self._is_flushing = False
        self._refusal: BaseException | None = None

    @property
    def downtime(self) -> float:
        """Seconds, between the attempts so far, in which nobody drove the run."""
        return self._past.downtime

    def past_chunks(self) -> Sequence[Any]:
        """What the finished steps of earlier attempts sent out, in the order of `seq`."""
        return self._past.chunks()

    # -- notes ------------------------------------------------------------------------------------

    def begin(self, start: StepStart) -> StepRecord | None:
        self._refuse()
        row: dict[str, Any] = {
            "run_id": self._claim.run_id,
            "key": start.key,
            "leaf": start.leaf,
            "effect": start.effect.value,
            "attempt": self._claim.attempt,
            "request_hash": self._hash(start.request),
            "status": "started",
            "payload": None,
            "started_at": time(),
            "ended_at": None,
        }
        record = self._past.judged(row)
        if record is None or record.outcome_unknown:
            self._open[start.key] = row
            if start.effect is not Effect.NONE:
                self._note(row, is_start=True)
        return record

    def _hash(self, request: str) -> str:
        """Of what is left without secrets: after a resume the request has them no more."""
        if not request:
            return ""
        text = self._hide(request).encode("utf-8", "replace")
        return hashlib.blake2b(text, digest_size=16).hexdigest()

    def finish(self, key: str, record: StepRecord) -> None:
        self._refuse()
        row = self._open[key].copy()
        row["status"] = "succeeded" if record.succeeded else "failed"
        row["payload"] = encoded(key, record, self._hide)
        row["ended_at"] = time()
        self._note(row)
        # An answer that was paid for is not asked for again because its tools take their time.
        if row["effect"] != Effect.NONE.value or row["request_hash"]:
            self._flush_soon()

    def _note(self, row: dict[str, Any], *, is_start: bool = False) -> None:
        self._noted += 1
        self._notes.add(row, is_start=is_start)

    def pin(self, pins: bytes) -> None:
        self._refuse()
        self._notes.pins = pins

    def ride(self, operation: Operation[Any]) -> None:
        self._refuse()
        self._notes.riders.append(operation)

    # -- writes -----------------------------------------------------------------------------------

    async def flush(self) -> None:
        self._refuse()
        noted = self._noted
        if self._durable >= noted:
            return
        async with self._writing:
            if self._durable < noted:  # else somebody's flush took ours along
                await self._commit(_nothing)

    async def commit(self, operation: Operation[T]) -> T:
        self._refuse()
        async with self._writing:
            return await self._commit(operation)

    async def _commit(self, operation: Operation[T]) -> T:
        claim = self._claim

        def write(tx: Transaction, notes: PendingWrites) -> T:
            if notes.pins is None:
                check_claim(tx, claim)
            else:
                pin(tx, claim, notes.pins)
            notes.write(tx)
            return operation(tx)

        return await self._write(write)

    async def end(self, ending: RunEnd) -> EndReceipt:
        self._refuse()
        check_ending(ending)
        ending = hidden_ending(ending, self._hide)
        error = None if ending.error is None else to_json(changed(dict(ending.error), self._hide))
        async with self._writing:
            ended = await self._write(
                lambda tx, notes: end_run(tx, self._claim, ending, notes=notes, error_json=error),
                soft=False,
            )
        self._release(self._claim)
        return ended

    async def _write(
        self, operation: Callable[[Transaction, PendingWrites], T], *, soft: bool = True
    ) -> T:
        """Write what was noted, and something else with it. One write at a time.

        Notes are dropped only when they are durable: until then they go with whatever else is
        written for the run.
        """
        if self._lost is not None:
            await asyncio.wait([self._lost])
            self._lost = None
        self._refuse()
        self._flush_no_more()
        notes, count = self._notes.copy(), self._noted
        found = asyncio.get_running_loop().create_future()
        future = self._database.submit(
            lambda tx: operation(tx, notes),
            soft=soft and not notes.starts,
            lost=lambda _, error: self._find(found, notes, count, error),
        )
        try:
            result = await future
        except asyncio.CancelledError:
            if future.cancelled():
                self._lost = found
            elif future.exception() is None:  # it had come, a moment before
                self._settle(notes, count)
            raise
        self._settle(notes, count)
        return result

    def _find(
        self,
        found: asyncio.Future[None],
        notes: PendingWrites,
        count: int,
        error: BaseException | None,
    ) -> None:
        """Nobody waited any more; what was written is known all the same."""
        if error is None:
            self._settle(notes, count)
        log_lost(None, error)
        found.set_result(None)

    def _settle(self, notes: PendingWrites, count: int) -> None:
        self._durable = count
        self._notes.drop(notes)

    def release(self) -> None:
        self._flush_no_more()
        self._refusal = Fenced(
            f"this process leaves run {self._claim.run_id}: it goes on elsewhere."
        )

    def _flush_soon(self) -> None:
        if self._soon is None and not self._is_flushing:
            self._soon = asyncio.get_running_loop().call_later(_SOON, self._flush_now)

    def _flush_no_more(self) -> None:
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None

    def _flush_now(self) -> None:
        self._soon = None
        self._is_flushing = True
        self._background.start(self._flush_quietly)

    async def _flush_quietly(self) -> None:
        """Nobody waits for this one, so its failure is told to whoever comes next."""
        try:
            await self.flush()
        except Exception as error:  # noqa: BLE001 - the boundary of a task root
            self._refusal = self._refusal or error
        finally:
            self._is_flushing = False

    def _refuse(self) -> None:
        if self._refusal is not None:
            raise self._refusal


def _nothing(_: Transaction) -> None:
    """Write only what was noted."""


class Journals:
    """The journals of all runs. `release` is told of runs that have ended."""

    def __init__(
        self, database: Database, *, hide: Redact, release: Callable[[Claim], None]
    ) -> None:
        self._database = database
        self._hide = hide
        self._release = release
        self._background = Background()

    async def open(self, claim: Claim) -> RunJournal:
        """The journal of a run that this process has claimed, with what earlier attempts left."""
        past = NO_PAST
        if claim.is_resumed:
            past = await self._database.read(lambda tx: read_past(tx, claim))
        return RunJournal(
            self._database,
            claim,
            hide=self._hide,
            background=self._background,
            release=self._release,
            past=past,
        )

    async def steps(self, user_id: str, run_id: int) -> list[StepRow]:
        """The steps of a run, for people to look at, in the order in which they began."""

        def read(tx: Transaction) -> list[StepRow]:
            find_node(tx, user_id, run_id)
            return read_steps(tx, run_id)

        return await self._database.read(read)

    async def close(self) -> None:
        """Wait for what is being written; journals write nothing by themselves any more."""
        await self._background.close()

    async def expire(self, before: float) -> int:
        """Forget what the steps of runs left that ended before a time; messages stay."""
        return await self._database.write(lambda tx: expire(tx, before))
