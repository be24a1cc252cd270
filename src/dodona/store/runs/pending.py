"""Journal records that are not written yet."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from time import time
from typing import Any

from sqlalchemy import bindparam, select, update

from dodona.core.domain.conversations.conversation import Claim
from dodona.store.db.database import StoreOperation, Transaction
from dodona.store.db.statements import statement, upsert
from dodona.store.runs.runs import IS_CLAIMED, claim_values, raise_if_fenced
from dodona.store.runs.steps import save_steps
from dodona.store.schema import pins, runs

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
            save_steps(tx, list(self.steps.values()))
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
