"""What is looked after while Dodona runs: idle contexts are closed, what has expired goes."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack, suppress
from time import time
from typing import Final

from dodona.app.config.config import Config
from dodona.core.errors import StoreError
from dodona.store import Store

TIDY_EVERY: Final = 60.0  # seconds
KEPT_FOR: Final = 30 * 86_400.0  # seconds that steps of ended runs can be replayed

_log = logging.getLogger(__name__)


class Maintenance:
    """Tidies the store; how long things are kept is as the config says now."""

    def __init__(self, store: Store, config: Config) -> None:
        self._store = store
        self._idle = self._audit = 0.0
        self.take(config)

    def take(self, config: Config) -> None:
        self._idle = config.settings.context.idle_minutes * 60.0
        self._audit = config.settings.audit.kept_days * 86_400.0

    async def begin(self, stack: AsyncExitStack, *, again: bool) -> None:
        """Close what is idle now; `again`: and tidy up now and then until the stack ends."""
        await self._store.contexts.close_idle(time() - self._idle)
        if again:
            stack.push_async_callback(_cancelled, asyncio.create_task(self._tidy_often()))

    async def _tidy_often(self) -> None:
        while True:
            await asyncio.sleep(TIDY_EVERY)
            try:
                await self._run_once()
            except StoreError as error:
                _log.warning("the store cannot be tidied: %s", error)

    async def _run_once(self) -> None:
        store = self._store
        await store.contexts.close_idle(time() - self._idle)
        await store.journals.expire(time() - KEPT_FOR)
        await store.budgets.settle_dead()
        await store.budgets.expire(time() - KEPT_FOR)
        await store.audit.expire(time() - self._audit)


async def _cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
