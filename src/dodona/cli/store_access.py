"""Store access for commands that need no model."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

from dodona.app.config.config import Config
from dodona.app.config.store_url import store_url
from dodona.app.models.credentials import Credentials
from dodona.app.projects.code import code_folders
from dodona.app.projects.vaults import vault_folder
from dodona.cli.client.connect import find_announcement
from dodona.cli.terminal.output import REDACTOR
from dodona.net.redactor import Redactor
from dodona.store.store import Store

T = TypeVar("T")


@asynccontextmanager
async def open_store(config: Config, redactor: Redactor) -> AsyncGenerator[Store]:
    """Open the store. A running gateway may use it at the same time."""
    # In a thread: a relative path needs the current folder, which blocks.
    url = await asyncio.to_thread(store_url, config, Credentials(config, os.environ, redactor))
    durability = config.settings.store.durability
    async with await Store.open(url, redact=redactor.redact, durability=durability) as store:
        yield store


def run_with_store(config: Config, action: Callable[[Store], Awaitable[T]]) -> T:
    """Open the store, run an action on it and return its result."""

    async def run() -> T:
        async with open_store(config, REDACTOR) as store:
            return await action(store)

    return asyncio.run(run())


def default_vault_folder(config: Config, redactor: Redactor) -> Path:
    """Return the default project's folder of notes, as used by a running gateway. Blocks."""
    if config.settings.vault.path is None:
        announcement = find_announcement(config, Credentials(config, os.environ, redactor))
        if announcement is not None and announcement.vault:
            return Path(announcement.vault)
    return vault_folder(config)


def default_code_folders(config: Config, redactor: Redactor) -> tuple[Path, ...]:
    """Return the default project's folders of code, as used by a running gateway. Blocks."""
    if not config.settings.code.paths:
        announcement = find_announcement(config, Credentials(config, os.environ, redactor))
        if announcement is not None:
            return tuple(map(Path, announcement.code))
    return code_folders(config)
