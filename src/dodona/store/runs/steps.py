"""Storage of a run's steps and pins: encoding, pending writes, replay after a resume, expiry."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter
from time import time
from typing import Any, Final

import msgspec
from sqlalchemy import bindparam, delete, or_, select, update

from dodona.core.chunks import StreamChunk
from dodona.core.domain.conversations.conversation import Claim, StepOutput, StepRow
from dodona.core.errors import RunDiverged, StoreError, TreeError
from dodona.core.ports.journal import Effect, StepRecord
from dodona.store.db.database import Row, StoreOperation, Transaction
from dodona.store.db.statements import insert_or_replace, statement, upsert
from dodona.store.db.text import Redact, to_redacted_json
from dodona.store.runs.runs import IS_CLAIMED, claim_values, raise_if_fenced
from dodona.store.schema import pins, runs, steps

_COLUMNS: Final = (
    *("run_id", "key", "leaf", "effect", "attempt", "request_hash", "status", "payload"),
    *("started_at", "ended_at"),
)
_UPSERT_STEP = insert_or_replace(steps, *_COLUMNS)
_SELECT_STEPS = statement(
    select(*(steps.c[name] for name in _COLUMNS)).where(steps.c.run_id == bindparam("run_id"))
)
_SELECT_STARTED_AT = statement(select(runs.c.started_at).where(runs.c.id == bindparam("run_id")))
_CLEAR_PAYLOADS = statement(
    update(steps)
    .where(
        steps.c.payload.is_not(None),
        steps.c.run_id.in_(select(runs.c.id).where(runs.c.ended_at < bindparam("before"))),
    )
    .values(payload=None)
)
_EXISTING_HASH = select(pins.c.hash).where(pins.c.hash == bindparam("new_pins")).scalar_subquery()
_UPDATE_PINS = statement(
    update(runs).where(*IS_CLAIMED).values(pins_hash=_EXISTING_HASH).returning(runs.c.pins_hash)
)
_INSERT_PINS = upsert(
    pins,
    lambda add: add.values(
        {name: bindparam(name) for name in ("hash", "content", "created_at")}
    ).on_conflict_do_nothing(),
)
_DELETE_UNUSED_PINS = statement(
    delete(pins).where(
        pins.c.created_at < bindparam("before"),
        pins.c.hash.not_in(
            select(runs.c.pins_hash).where(
                runs.c.pins_hash.is_not(None),
                or_(runs.c.ended_at.is_(None), runs.c.ended_at >= bindparam("before")),
            )
        ),
    )
)

_OUTCOME_UNKNOWN: Final = {
    "code": "outcome_unknown",
    "message": "the process stopped during this step: its outcome is unknown.",
    "hint": "Verify before repeating it.",
}


_decode_output = msgspec.json.Decoder(StepOutput).decode


def encode_record(key: str, record: StepRecord, redact: Redact) -> str:
    """Encode the result of a step as JSON without secrets."""
    output = StepOutput(record.writes, record.chunks, record.error)
    try:
        return to_redacted_json(output, redact)
    except (TypeError, ValueError, RecursionError) as error:
        raise TreeError(
            f"the output of leaf '{record.leaf}' at {key} cannot be stored: {error}.",
            hint="Steps may write texts, numbers, lists and maps.",
        ) from error


class PendingWrites:
    """The latest record of each step, operations to run with them, and the run's pins."""

    __slots__ = ("operations", "pins", "started_effects", "steps")

    def __init__(self) -> None:
        self.steps: dict[str, dict[str, Any]] = {}
        self.started_effects: set[str] = set()  # must survive a power failure
        self.operations: list[StoreOperation[Any]] = []
        self.pins: bytes | None = None

    def add(self, row: dict[str, Any], *, is_start: bool) -> None:
        key = row["key"]
        self.steps[key] = row
        if is_start:
            self.started_effects.add(key)

    def copy(self) -> PendingWrites:
        """Return a snapshot; later records are not part of it."""
        snapshot = PendingWrites()
        snapshot.steps, snapshot.started_effects = self.steps.copy(), self.started_effects.copy()
        snapshot.operations, snapshot.pins = self.operations.copy(), self.pins
        return snapshot

    def drop(self, written: PendingWrites) -> None:
        """Drop records that have been written; a newer record of the same step stays."""
        for key, row in written.steps.items():
            if self.steps.get(key) is row:
                del self.steps[key]
        self.started_effects -= written.started_effects
        del self.operations[: len(written.operations)]
        if self.pins is written.pins:
            self.pins = None

    def write(self, tx: Transaction) -> None:
        """Write the steps, then run the operations."""
        if self.steps:
            tx.execute_many(_UPSERT_STEP, list(self.steps.values()))
        for operation in self.operations:
            operation(tx)


def save_pins(tx: Transaction, claim: Claim, content: bytes) -> None:
    """Save the pins of a run, stored once for all runs with the same pins; check the claim."""
    hash_ = _hash(content)
    row = tx.fetch_one(_UPDATE_PINS, **claim_values(claim), new_pins=hash_)
    raise_if_fenced(claim, row)
    if row == (None,):
        tx.execute(_INSERT_PINS, hash=hash_, content=content, created_at=time())
        tx.fetch_one(_UPDATE_PINS, **claim_values(claim), new_pins=hash_)


@lru_cache(maxsize=64)
def _hash(content: bytes) -> str:
    """Hash the pins; most runs share the same object, whose own hash is cached."""
    return hashlib.blake2b(content, digest_size=16).hexdigest()


@dataclass(frozen=True, slots=True)
class PastAttempts:
    """The steps of earlier attempts of a run, by key."""

    steps: Mapping[str, Mapping[str, Any]]
    downtime: float

    def resolve_step(self, row: Mapping[str, Any]) -> StepRecord | None:
        """Return the recorded result of a step that starts; None if the step must run."""
        past = self.steps.get(row["key"])
        return None if past is None else _resolve_step(row, past)

    def seconds_of(self, leaves: Collection[str]) -> float:
        """Return the time in which a finished step of these leaves ran; overlaps count once."""
        spans = sorted(
            (step["started_at"], step["ended_at"])
            for step in self.steps.values()
            if step["leaf"] in leaves and step["ended_at"] is not None
        )
        total, last = 0.0, 0.0
        for start, end in spans:
            total += max(0.0, end - max(start, last))
            last = max(last, end)
        return total

    def chunks(self) -> list[StreamChunk]:
        """Return the chunks of finished steps, ordered by `seq`."""
        payloads = [past["payload"] for past in self.steps.values() if past["payload"] is not None]
        chunks = [chunk for payload in payloads for chunk in _decode_output(payload).chunks]
        return sorted(chunks, key=attrgetter("seq"))


NO_PAST_ATTEMPTS: Final = PastAttempts({}, 0.0)


def read_past_attempts(tx: Transaction, claim: Claim) -> PastAttempts:
    """Load the steps of earlier attempts, and the time between attempts."""
    rows = tx.fetch_all(_SELECT_STEPS, run_id=claim.run_id)
    past_steps = [dict(zip(_COLUMNS, row, strict=True)) for row in rows]
    started = tx.fetch_one(_SELECT_STARTED_AT, run_id=claim.run_id)
    first = time() if started is None or started[0] is None else started[0]
    return PastAttempts(
        {step["key"]: step for step in past_steps}, _downtime(past_steps, first=first, now=time())
    )


def _downtime(step_rows: Iterable[Mapping[str, Any]], *, first: float, now: float) -> float:
    """Sum the gaps between the last known time of each attempt and the first of the next."""
    spans: dict[int, tuple[float, float]] = {}
    for step in step_rows:
        started, ended = step["started_at"], step["ended_at"] or step["started_at"]
        start, end = spans.get(step["attempt"], (started, ended))
        spans[step["attempt"]] = (min(start, started), max(end, ended))
    down, last = 0.0, first
    for attempt in sorted(spans):
        start, end = spans[attempt]
        if attempt > 1:
            down += max(0.0, start - last)
        last = max(last, end)
    return down + max(0.0, now - last)


def _resolve_step(row: Mapping[str, Any], past: Mapping[str, Any]) -> StepRecord | None:
    key, leaf, once = row["key"], row["leaf"], Effect.ONCE.value
    if any(past[name] != row[name] for name in ("leaf", "request_hash")):
        if once in (past["effect"], row["effect"]):
            raise RunDiverged(
                f"step {key} started with a different request before, and must not run twice.",
                hint="The tree or its inputs have changed: this run cannot be resumed.",
            )
        return None
    if past["status"] == "started":
        if row["effect"] != once:
            return None
        return StepRecord(leaf, False, error=_OUTCOME_UNKNOWN, outcome_unknown=True)
    if past["payload"] is None:
        raise StoreError(
            f"the result of step {key} has expired.",
            hint="Runs that ended so long ago cannot be replayed.",
        )
    output = _decode_output(past["payload"])
    succeeded = past["status"] == "succeeded"
    return StepRecord(past["leaf"], succeeded, output.writes, output.chunks, output.error)


def read_steps(tx: Transaction, run_id: int) -> list[StepRow]:
    """Load the steps of a run, in the order in which they started."""
    rows = tx.fetch_all(_SELECT_STEPS, run_id=run_id)
    return sorted(
        map(_step_from_row, rows), key=lambda step: (step.started_at, step.ended_at or 0.0)
    )


def _step_from_row(row: Row) -> StepRow:
    _, key, leaf, effect, attempt, request_hash, status, payload, started_at, ended_at = row
    output = None if payload is None else _decode_output(payload)
    return StepRow(key, leaf, effect, attempt, request_hash, status, started_at, ended_at, output)


def expire_payloads(tx: Transaction, before: float) -> int:
    """Delete step results and unused pins; return the number of affected steps."""
    count = tx.execute(_CLEAR_PAYLOADS, before=before)
    tx.execute(_DELETE_UNUSED_PINS, before=before)
    return count
