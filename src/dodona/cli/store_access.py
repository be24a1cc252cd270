"""The store for commands that only look at it or change a setting: no model is needed."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from dodona.app.config.config import Config
from dodona.app.config.store_url import store_url
from dodona.app.models.credentials import Credentials
from dodona.app.projects.code import code_folders
from dodona.app.projects.vaults import vault_folder
from dodona.cli.client.connect import find_announcement
from dodona.net.redactor import Redactor
from dodona.store.store import Store


@asynccontextmanager
async def open_store(config: Config, redactor: Redactor) -> AsyncGenerator[Store]:
    """Beside a gateway that uses it too, if one runs."""
    url = store_url(config, Credentials(config, os.environ, redactor))
    durability = config.settings.store.durability
    async with await Store.open(url, redact=redactor.redact, durability=durability) as store:
        yield store


def default_vault_folder(config: Config, redactor: Redactor) -> Path:
    """The folder of its notes. It blocks."""
    if config.settings.vault.path is None:
        announced = find_announcement(config, Credentials(config, os.environ, redactor))
        if announced is not None and announced.vault:
            return Path(announced.vault)
    return vault_folder(config)


def default_code_folders(config: Config, redactor: Redactor) -> tuple[Path, ...]:
    """The folders of its code. It blocks."""
    if not config.settings.code.paths:
        announced = find_announcement(config, Credentials(config, os.environ, redactor))
        if announced is not None:
            return tuple(map(Path, announced.code))
    return code_folders(config)
