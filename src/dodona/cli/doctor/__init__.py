"""The checks of `dodona doctor`, one module per part of an installation."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

from dodona.app.config.config import Config
from dodona.app.models.credentials import Credentials
from dodona.cli.doctor import gateway, home, models, notes, store
from dodona.cli.doctor.finding import Finding


def run_local_checks(config: Config, credentials: Credentials) -> Iterator[Finding]:
    """Run the checks that need no network. Blocks."""
    yield from home.run_checks(config)
    yield from store.run_checks(config, credentials)
    yield from notes.run_checks(config)


async def run_remote_checks(config: Config, credentials: Credentials) -> AsyncIterator[Finding]:
    """Run the checks that send requests: to the gateway and to model providers."""
    async for finding in gateway.run_checks(config, credentials):
        yield finding
    async for finding in models.run_checks(config, credentials):
        yield finding
