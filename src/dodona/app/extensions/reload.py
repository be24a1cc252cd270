"""Loads extensions again when their files change; one with errors changes nothing.

Runs in progress keep the registry that they started with.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from dodona.app.agents.registry import LiveAgents
from dodona.app.config.config import Config
from dodona.concurrency.file_watcher import FileWatcher
from dodona.core.errors import DodonaError
from dodona.notify import SubscriberRegistry
from dodona.rules import RuleBook

_log = logging.getLogger(__name__)


class ExtensionReloader:
    """Applies changes of extensions to the agents, the subscribers and the rules."""

    def __init__(
        self, agents: LiveAgents, subscribers: SubscriberRegistry, rules: RuleBook
    ) -> None:
        self._agents = agents
        self._subscribers = subscribers
        self._rules = rules
        self._last_error = ""
        self._lock = asyncio.Lock()  # changes of the config and of extensions do not overlap

    async def apply(self, config: Config) -> None:
        """Switch to another config; raise and change nothing if it, or an extension, is invalid."""
        async with self._lock:
            old = self._agents.registry
            await self._agents.apply(config)
            if self._agents.registry is not old:
                await self._reload_users()

    async def reload(self) -> None:
        """Load changed extensions. Each error is logged once."""
        try:
            async with self._lock:
                if await self._agents.reload_extensions():
                    await self._reload_users()
                    _log.info("extensions reloaded")
            self._last_error = ""
        except DodonaError as error:
            if str(error) != self._last_error:
                _log.warning("invalid extension, keeping the previous one: %s", error)
            self._last_error = str(error)

    @asynccontextmanager
    async def watching(self, watcher: FileWatcher) -> AsyncGenerator[None]:
        """Watch the files of extensions while the block runs."""
        files = self._agents.extension_files
        async with watcher.watch_files(files, self.reload, suffixes=(".py",)):
            yield

    async def _reload_users(self) -> None:
        await asyncio.to_thread(self._subscribers.reload)
        await asyncio.to_thread(self._rules.reload)
