"""Whether the store can be written, found out by writing: one row, over and over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic, time
from typing import Final

from dodona.core.errors import StoreError
from dodona.store.db.database import Database, Transaction
from dodona.store.db.statements import insert_or_replace
from dodona.store.schema import tree_globals

PROBE_SCOPE: Final = "dodona"
PROBE_KEY: Final = "pulse"
TIMEOUT_SECONDS: Final = 2.0  # seconds for one small commit
CACHE_SECONDS: Final = (
    1.0  # … for which the last one counts: whoever asks all the time costs no more
)

_UPSERT_PROBE = insert_or_replace(tree_globals, "scope", "key", "value_json")


def _write_probe(tx: Transaction) -> None:
    tx.execute(_UPSERT_PROBE, scope=PROBE_SCOPE, key=PROBE_KEY, value_json=str(round(time(), 3)))


class WriteProbe:
    """Takes the pulse of a database. One write is on its way at most, whoever asks."""

    def __init__(
        self,
        database: Database,
        *,
        timeout_seconds: float = TIMEOUT_SECONDS,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._database = database
        self._timeout_seconds = timeout_seconds
        self._clock = clock
        self._write: asyncio.Future[None] | None = None
        self._written_at = float("-inf")

    async def check(self) -> None:
        """Raise when nothing can be written, or not in time."""
        if self._clock() - self._written_at < CACHE_SECONDS:
            return
        if self._write is None or self._write.done():
            self._write = self._database.submit(_write_probe, soft=True)
        beating = self._write
        try:
            async with asyncio.timeout(self._timeout_seconds):
                await asyncio.shield(beating)
        except TimeoutError as error:
            raise StoreError(
                f"the store has not taken a write for {self._timeout_seconds:g} seconds.",
                hint="Is it locked by another program, or its disk slow or full?",
            ) from error
        self._written_at = self._clock()
