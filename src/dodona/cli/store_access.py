"""The store for commands that only look at it or change a setting: no model is needed."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from dodona.app.config.config import Config
from dodona.app.models.credentials import Credentials
from dodona.app.store_url import store_url
from dodona.net.redactor import Redactor
from dodona.store.store import Store


@asynccontextmanager
async def opened_store(config: Config, redactor: Redactor) -> AsyncGenerator[Store]:
    """Beside a gateway that uses it too, if one runs."""
    url = store_url(config, Credentials(config, os.environ, redactor))
    durability = config.settings.store.durability
    async with await Store.open(url, hide=redactor.hide, durability=durability) as store:
        yield store
