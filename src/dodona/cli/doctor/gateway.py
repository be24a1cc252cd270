"""Checks of the gateway and its port."""

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
    """Check the running gateway, or whether its port is free."""
    announcement = await asyncio.to_thread(Announcement.read, config.home)
    if announcement is not None:
        yield await _check_announced(announcement, config, credentials)
        for finding in await _check_blocking(announcement, config):
            yield finding
        return
    file = config.home / GATEWAY_FILE_NAME
    if await asyncio.to_thread(file.exists):
        message = f"{file} names a gateway that no longer runs."
        yield warning("gateway", message, f"rm {file}", remove_fix(file))
    yield await asyncio.to_thread(_check_port, config)


async def _check_announced(
    announcement: Announcement, config: Config, credentials: Credentials
) -> Finding:
    where = f"{announcement.url}, process {announcement.pid}"
    async with gateway_client(announcement, config.home) as client:
        if not await client.is_reachable():
            file = config.home / GATEWAY_FILE_NAME
            hint = f"If process {announcement.pid} is another program: rm {file}"
            return wrong("gateway", f"{where} does not respond.", hint)
        try:
            await client.get("/readyz")
        except DodonaError as error:
            return wrong("gateway", f"{where} is not ready: {error.message}", error.hint)
    try:
        store = str(parse_location(store_url(config, credentials)))
    except ConfigError:
        store = announcement.store
    if announcement.store != store:
        message = f"{where} uses another store: {announcement.store}."
        return warning("gateway", message, "Check whether it uses another config file.")
    return ok("gateway", f"{where}, ready")


async def _check_blocking(announcement: Announcement, config: Config) -> list[Finding]:
    """Report extensions that have blocked the event loop of the gateway."""
    async with gateway_client(announcement, config.home) as client:
        try:
            status = await client.get("/api/status")
        except DodonaError:
            return []  # the check of the gateway has reported it
    return [
        warning(
            "extensions",
            f"{each['name']} has blocked the event loop at {each['where']}.",
            each["hint"],
        )
        for each in status.get("blocking", ())
    ]


def _check_port(config: Config) -> Finding:
    host, port = config.settings.gateway.host, config.settings.gateway.port
    if port == 0:
        return ok("port", "any free port")
    address = "127.0.0.1" if host == "localhost" else host.strip("[]")
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.create_server((address, port), family=family):
            return ok("port", f"{port} on {address} is free; no gateway is running")
    except OSError as error:
        message = f"{port} on {address} cannot be used: {error.strerror}."
        return wrong("port", message, "Stop the program that uses it, or set gateway.port.")
