"""The journal of one run: what its steps were asked and what they left.

Notes are gathered and written together: when a barrier asks for it, with the next thing that the
run commits, or a moment after an effect has ended. Every write checks that the run is still ours.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Coroutine, Mapping
from time import time
from typing import Any, TypeVar

import msgspec
from sqlalchemy import bindparam, select, update

from dodona.core.conversation import Claim
from dodona.core.errors import StoreError, TreeError
from dodona.core.ports import Effect, StepRecord, StepStart
from dodona.store.database import Database, Operation, Row, Transaction
from dodona.store.runs import check_claim
from dodona.store.schema import runs, steps
from dodona.store.statements import replacement, statement
from dodona.store.text import Hide, changed, to_json

T = TypeVar("T")

_SOON = 0.02  # seconds after an effect has ended

_COLUMNS = (
    *("run_id", "key", "leaf", "effect", "attempt", "request_hash", "status", "payload"),
    *("started_at", "ended_at"),
)
_PUT = replacement(steps, *_COLUMNS)
_READ = statement(
    select(*(steps.c[name] for name in _COLUMNS)).where(steps.c.run_id == bindparam("run_id"))
)
_EXPIRE = statement(
    update(steps)
    .where(
        steps.c.payload.is_not(None),
        steps.c.run_id.in_(select(runs.c.id).where(runs.c.ended_at < bindparam("before"))),
    )
    .values(payload=None)
)

_UNKNOWN = {
    "code": "outcome_unknown",
    "message": "the process stopped while this was being done: its outcome is unknown.",
    "hint": "Verify before repeating it.",
}


class _Payload(msgspec.Struct, omit_defaults=True):
    """What a finished step left, as it is kept."""

    writes: dict[str, Any] = {}
    chunks: list[Any] = []
    error: dict[str, Any] | None = None


_payload = msgspec.json.Decoder(_Payload)


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
        past: list[Row],
        hide: Hide,
        background: Background,
    ) -> None:
        self._database = database
        self._background = background
        self._claim = claim
        self._hide = hide
        self._past = {row[1]: dict(zip(_COLUMNS, row, strict=True)) for row in past}
        self._current: dict[str, dict[str, Any]] = {}
        self._pending: dict[str, dict[str, Any]] = {}
        self._noted = self._durable = 0  # how many notes were made, and are on the disk
        self._writing = asyncio.Lock()
        self._soon: asyncio.TimerHandle | None = None
        self._is_flushing = False
        self._broken: BaseException | None = None

    def begin(self, start: StepStart) -> StepRecord | None:
        self._refuse_broken()
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
        past = self._past.get(start.key)
        record = None if past is None else _judged(row, past)
        if record is None or record.outcome_unknown:
            self._note(row)
        return record

    def _hash(self, request: str) -> str:
        """Of what is left without secrets: after a resume the request has them no more."""
        if not request:
            return ""
        text = self._hide(request).encode("utf-8", "replace")
        return hashlib.blake2b(text, digest_size=16).hexdigest()

    def finish(self, key: str, record: StepRecord) -> None:
        self._refuse_broken()
        row = self._current[key]
        self._note(
            {
                **row,
                "status": "succeeded" if record.succeeded else "failed",
                "payload": self._encoded(key, record),
                "ended_at": time(),
            }
        )
        if row["effect"] != Effect.NONE.value:
            self._flush_soon()

    async def flush(self) -> None:
        self._refuse_broken()
        noted = self._noted
        async with self._writing:
            if self._durable < noted:  # else somebody's flush took ours along
                await self._commit(lambda _: None)

    async def commit(self, operation: Operation[T]) -> T:
        """Do something for the run, in one transaction with what was noted before it."""
        self._refuse_broken()
        async with self._writing:
            return await self._commit(operation)

    async def _commit(self, operation: Operation[T]) -> T:
        noted, count = dict(self._pending), self._noted
        self._flush_no_more()
        result = await self._database.write(lambda tx: self._write(tx, noted, operation))
        self._durable = count
        # Only now: until it is durable, it goes with whatever else is written for the run.
        for key, row in noted.items():
            if self._pending.get(key) is row:
                del self._pending[key]
        return result

    def _write(
        self, tx: Transaction, noted: Mapping[str, dict[str, Any]], operation: Operation[T]
    ) -> T:
        check_claim(tx, self._claim)
        for row in noted.values():
            tx.run(_PUT, **row)
        return operation(tx)

    def noted(self) -> Operation[None]:
        """What is not written yet, for a transaction of the caller's: the one that ends the run."""
        self._flush_no_more()
        rows = list(self._pending.values())

        def write(tx: Transaction) -> None:
            for row in rows:
                tx.run(_PUT, **row)

        return write

    def _note(self, row: dict[str, Any]) -> None:
        self._noted += 1
        self._current[row["key"]] = self._pending[row["key"]] = row

    def _encoded(self, key: str, record: StepRecord) -> str:
        error = None if record.error is None else dict(record.error)
        left = {"writes": dict(record.writes), "chunks": list(record.chunks), "error": error}
        try:
            # Before it is JSON: a secret of digits, taken out of JSON, would leave none.
            return to_json(changed(left, self._hide))
        except (TypeError, ValueError, RecursionError) as wrong:
            raise TreeError(
                f"what leaf '{record.leaf}' left at {key} cannot be kept: {wrong}.",
                hint="Steps write texts, numbers, lists and maps.",
            ) from wrong

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
            self._broken = error
        finally:
            self._is_flushing = False

    def _refuse_broken(self) -> None:
        if self._broken is not None:
            raise self._broken


def _judged(row: Mapping[str, Any], past: Mapping[str, Any]) -> StepRecord | None:
    """What is known of a step that was begun before; None when it runs (again)."""
    key, leaf, once = row["key"], row["leaf"], Effect.ONCE.value
    if any(past[name] != row[name] for name in ("leaf", "request_hash")):
        if once in (past["effect"], row["effect"]):
            raise StoreError(
                f"step {key} was begun with another request, and must not be done twice.",
                hint="Did the tree or its inputs change under the run? It cannot be resumed.",
            )
        return None
    if past["status"] == "started":
        if row["effect"] != once:
            return None
        return StepRecord(leaf, False, error=_UNKNOWN, outcome_unknown=True)
    if past["payload"] is None:
        raise StoreError(
            f"what step {key} left has expired.",
            hint="Runs that ended so long ago cannot be replayed.",
        )
    kept = _payload.decode(past["payload"])
    return StepRecord(
        leaf=past["leaf"],
        succeeded=past["status"] == "succeeded",
        writes=kept.writes,
        chunks=tuple(kept.chunks),
        error=kept.error,
    )


class Journals:
    """The journals of all runs."""

    def __init__(self, database: Database, *, hide: Hide) -> None:
        self._database = database
        self._hide = hide
        self._background = Background()

    async def open(self, claim: Claim) -> RunJournal:
        """The journal of a run that this process has claimed, with what earlier attempts left."""
        past: list[Row] = []
        if claim.is_resumed:
            past = await self._database.read(lambda tx: tx.rows(_READ, run_id=claim.run_id))
        return RunJournal(
            self._database, claim, past=past, hide=self._hide, background=self._background
        )

    async def close(self) -> None:
        """Wait for what is being written; journals write nothing by themselves any more."""
        await self._background.close()

    async def expire(self, before: float) -> int:
        """Forget what the steps of runs left that ended before a time; messages stay."""
        return await self._database.write(lambda tx: tx.run(_EXPIRE, before=before))
