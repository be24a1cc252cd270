"""What a journal has noted and not written yet."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from time import time
from typing import Any

from sqlalchemy import bindparam, select, update

from dodona.core.domain.conversations.conversation import Claim
from dodona.store.db.database import Operation, Transaction
from dodona.store.db.statements import statement, upsert
from dodona.store.runs.runs import CLAIMED, claim_values, fenced
from dodona.store.runs.steps import put_steps
from dodona.store.schema import pins, runs

_KNOWN = select(pins.c.hash).where(pins.c.hash == bindparam("new_pins")).scalar_subquery()
_PIN = statement(update(runs).where(*CLAIMED).values(pins_hash=_KNOWN).returning(runs.c.pins_hash))
_ADD = upsert(
    pins,
    lambda add: add.values(
        {name: bindparam(name) for name in ("hash", "content", "created_at")}
    ).on_conflict_do_nothing(),
)


class PendingWrites:
    """Steps by key, the newest note of each; what rides along; what the run begins with."""

    __slots__ = ("pins", "riders", "starts", "steps")

    def __init__(self) -> None:
        self.steps: dict[str, dict[str, Any]] = {}
        self.starts: set[str] = set()  # of effects: these must outlive the power
        self.riders: list[Operation[Any]] = []
        self.pins: bytes | None = None

    def add(self, row: dict[str, Any], *, is_start: bool) -> None:
        key = row["key"]
        self.steps[key] = row
        if is_start:
            self.starts.add(key)

    def copy(self) -> PendingWrites:
        """As they are now; what is noted from now on is not among them."""
        same = PendingWrites()
        same.steps, same.starts = self.steps.copy(), self.starts.copy()
        same.riders, same.pins = self.riders.copy(), self.pins
        return same

    def drop(self, written: PendingWrites) -> None:
        """Forget what has been written; a newer note of the same step stays."""
        for key, row in written.steps.items():
            if self.steps.get(key) is row:
                del self.steps[key]
        self.starts -= written.starts
        del self.riders[: len(written.riders)]
        if self.pins is written.pins:
            self.pins = None

    def write(self, tx: Transaction) -> None:
        """Steps, then what rides along."""
        if self.steps:
            put_steps(tx, list(self.steps.values()))
        for operation in self.riders:
            operation(tx)


def pin(tx: Transaction, claim: Claim, content: bytes) -> None:
    """Keep what a run begins with, once for all runs that begin alike; it must be ours."""
    new = _hash(content)
    row = tx.row(_PIN, **claim_values(claim), new_pins=new)
    fenced(claim, row)
    if row == (None,):
        tx.run(_ADD, hash=new, content=content, created_at=time())
        tx.row(_PIN, **claim_values(claim), new_pins=new)


@lru_cache(maxsize=64)
def _hash(content: bytes) -> str:
    """Most runs begin with the very same object, which knows its place in the cache."""
    return hashlib.blake2b(content, digest_size=16).hexdigest()
