"""Periodic maintenance of the store: closes idle contexts and deletes expired records."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack, suppress
from time import time
from typing import Final

from dodona.app.config.config import Config
from dodona.core.errors import StoreError
from dodona.store import Store

MAINTENANCE_INTERVAL: Final = 60.0  # seconds
RETENTION_SECONDS: Final = 30 * 86_400.0  # how long the steps of an ended run can be replayed

_log = logging.getLogger(__name__)


class Maintenance:
    """Maintains the store, with the retention periods of the current config."""

    def __init__(self, store: Store, config: Config) -> None:
        self._store = store
        self._idle_seconds = self._audit_retention = self._version_retention = 0.0
        self._max_version_bytes = 0
        self.apply(config)

    def apply(self, config: Config) -> None:
        self._idle_seconds = config.settings.context.idle_minutes * 60.0
        self._audit_retention = config.settings.audit.kept_days * 86_400.0
        self._version_retention = config.settings.vault.versions_days * 86_400.0
        self._max_version_bytes = config.settings.vault.versions_mb * 1_000_000

    async def start(self, stack: AsyncExitStack, *, repeat: bool) -> None:
        """Close idle contexts now. With `repeat`, also run maintenance until the stack closes."""
        await self._store.contexts.close_idle(time() - self._idle_seconds)
        if repeat:
            stack.push_async_callback(_cancel, asyncio.create_task(self._run_periodically()))

    async def _run_periodically(self) -> None:
        while True:
            await asyncio.sleep(MAINTENANCE_INTERVAL)
            try:
                await self.run_once()
            except StoreError as error:
                _log.warning("store maintenance failed: %s", error)

    async def run_once(self) -> None:
        """Do all that is due now."""
        store = self._store
        await store.contexts.close_idle(time() - self._idle_seconds)
        await store.journals.delete_step_results(time() - RETENTION_SECONDS)
        await store.budgets.settle_orphaned()
        await store.budgets.delete_settled_reservations(time() - RETENTION_SECONDS)
        await store.audit.expire(time() - self._audit_retention)
        await store.note_versions.delete_old(time() - self._version_retention)
        await store.note_versions.delete_oversize(self._max_version_bytes)


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
