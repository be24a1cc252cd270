"""A health check of the store that writes the same row again and again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic, time
from typing import Final

from dodona.core.errors import StoreError
from dodona.store.db.database import Database, Transaction
from dodona.store.db.statements import insert_or_replace
from dodona.store.schema import tree_globals

# No user has an empty name: this row belongs to none.
PROBE_ROW: Final = {"user_id": "", "project_id": "", "agent_id": "", "key": "pulse"}
TIMEOUT_SECONDS: Final = 2.0  # for one small commit
CACHE_SECONDS: Final = 1.0  # how long a success is cached, so that frequent checks are cheap

_UPSERT_PROBE = insert_or_replace(tree_globals, *PROBE_ROW, "value_json")


def _write_probe(tx: Transaction) -> None:
    tx.execute(_UPSERT_PROBE, **PROBE_ROW, value_json=str(round(time(), 3)))


class WriteProbe:
    """Checks that a database is writable, with at most one write in progress."""

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
        """Raise StoreError if a write fails or takes too long."""
        if self._clock() - self._written_at < CACHE_SECONDS:
            return
        if self._write is None or self._write.done():
            self._write = self._database.submit(_write_probe, soft=True)
        write = self._write
        try:
            async with asyncio.timeout(self._timeout_seconds):
                await asyncio.shield(write)
        except TimeoutError as error:
            raise StoreError(
                f"the store has not completed a write within {self._timeout_seconds:g} seconds.",
                hint="Is it locked by another program, or is its disk slow or full?",
            ) from error
        self._written_at = self._clock()
