"""The gateway: does one run, does it answer, who has its port?"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

from dodona.app.config.config import Config
from dodona.app.config.store_url import store_url
from dodona.app.models.credentials import Credentials
from dodona.cli.client.gateway import gateway_client
from dodona.cli.client.gateway_file import GATEWAY_FILE_NAME, Announcement
from dodona.cli.doctor.finding import Finding, ok, remove_fix, warning, wrong
from dodona.core.errors import ConfigError, DodonaError
from dodona.store.db.location import parse_location


async def run_checks(config: Config, credentials: Credentials) -> AsyncIterator[Finding]:
    announced = await asyncio.to_thread(Announcement.read, config.home)
    if announced is not None:
        yield await _check_announced(announced, config, credentials)
        return
    file = config.home / GATEWAY_FILE_NAME
    if await asyncio.to_thread(file.exists):
        said = f"{file} tells of a gateway that is gone."
        yield warning("gateway", said, f"rm {file}", remove_fix(file))
    yield await asyncio.to_thread(_check_port, config)


async def _check_announced(
    announcement: Announcement, config: Config, credentials: Credentials
) -> Finding:
    where = f"{announcement.url}, process {announcement.pid}"
    async with gateway_client(announcement, config.home) as client:
        if not await client.is_reachable():
            advice = f"Is process {announcement.pid} another program by now? rm {config.home / GATEWAY_FILE_NAME}"
            return wrong("gateway", f"{where} does not answer.", advice)
        try:
            await client.get("/readyz")
        except DodonaError as error:
            return wrong("gateway", f"{where} is not ready: {error.message}", error.hint)
    try:
        store = str(parse_location(store_url(config, credentials)))
    except ConfigError:
        store = announcement.store
    if announcement.store != store:
        said = f"{where} uses another store: {announcement.store}."
        return warning("gateway", said, "Is it of another config?")
    return ok("gateway", f"{where}, is ready")


def _check_port(config: Config) -> Finding:
    host, port = config.settings.gateway.host, config.settings.gateway.port
    if port == 0:
        return ok("port", "any that is free")
    address = "127.0.0.1" if host == "localhost" else host.strip("[]")
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.create_server((address, port), family=family):
            return ok("port", f"{port} of {address} is free; no gateway runs")
    except OSError as error:
        said = f"{port} of {address} cannot be used: {error.strerror}."
        return wrong("port", said, "End who has it, or set [gateway] port.")
