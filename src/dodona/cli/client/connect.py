"""Choose the client of a command: a gateway that uses the same store, or this process."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from dodona.app.config.config import Config, load_config
from dodona.app.config.store_url import store_url
from dodona.app.models.credentials import Credentials
from dodona.app.telemetry.logging import configure_logging
from dodona.cli.client.gateway import gateway_client
from dodona.cli.client.gateway_file import Announcement
from dodona.cli.client.in_process import Client
from dodona.net.redactor import Redactor
from dodona.store.db.location import parse_location

_LOG_LEVEL_KEY = ("log", "level")


def load_config_quietly(file: Path | None, redactor: Redactor) -> Config:
    """Load the config. Log only warnings and errors unless a log level is configured."""
    config = load_config(os.environ, file)
    configure_logging(config.settings.log, redactor)
    if config.origins.of(_LOG_LEVEL_KEY) is None:
        logging.getLogger("dodona").setLevel(logging.WARNING)
    return config


def find_announcement(config: Config, credentials: Credentials) -> Announcement | None:
    """Return the gateway announced for the same store. It may not respond."""
    announcement = Announcement.read(config.home)
    if announcement is None or announcement.store != str(
        parse_location(store_url(config, credentials))
    ):
        return None
    return announcement


@asynccontextmanager
async def connect(config: Config, redactor: Redactor) -> AsyncGenerator[Client]:
    """Yield a client of the running gateway, else one in this process."""
    credentials = Credentials(config, os.environ, redactor)
    announcement = await asyncio.to_thread(find_announcement, config, credentials)
    if announcement is not None:
        async with gateway_client(announcement, config.home) as gateway:
            if await gateway.is_reachable():
                yield gateway
                return
    from dodona.app.bootstrap import open_runtime  # noqa: PLC0415 - slow, and not needed with a gateway
    from dodona.cli.client.in_process import InProcessClient  # noqa: PLC0415

    async with open_runtime(config, credentials, redactor, serve=False) as runtime:
        yield InProcessClient(runtime.api)
