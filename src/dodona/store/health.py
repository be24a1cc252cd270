"""Whether the store can be written, found out by writing: one row, over and over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic, time
from typing import Final

from dodona.core.errors import StoreError
from dodona.store.db.database import Database, Transaction
from dodona.store.db.statements import replacement
from dodona.store.schema import tree_globals

SCOPE: Final = "dodona"
KEY: Final = "pulse"
PATIENCE: Final = 2.0  # seconds for one small commit
FRESH: Final = 1.0  # … for which the last one counts: whoever asks all the time costs no more

_PUT = replacement(tree_globals, "scope", "key", "value_json")


def _beat(tx: Transaction) -> None:
    tx.run(_PUT, scope=SCOPE, key=KEY, value_json=str(round(time(), 3)))


class WriteProbe:
    """Takes the pulse of a database. One write is on its way at most, whoever asks."""

    def __init__(
        self,
        database: Database,
        *,
        patience: float = PATIENCE,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._database = database
        self._patience = patience
        self._clock = clock
        self._beating: asyncio.Future[None] | None = None
        self._beaten_at = float("-inf")

    async def take(self) -> None:
        """Raise when nothing can be written, or not in time."""
        if self._clock() - self._beaten_at < FRESH:
            return
        if self._beating is None or self._beating.done():
            self._beating = self._database.submit(_beat, soft=True)
        beating = self._beating
        try:
            async with asyncio.timeout(self._patience):
                await asyncio.shield(beating)
        except TimeoutError as error:
            raise StoreError(
                f"the store has not taken a write for {self._patience:g} seconds.",
                hint="Is it locked by another program, or its disk slow or full?",
            ) from error
        self._beaten_at = self._clock()
