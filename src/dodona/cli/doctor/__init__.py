"""What `dodona doctor` looks at, a file for each part of an installation."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

from dodona.app.config.config import Config
from dodona.app.models.credentials import Credentials
from dodona.cli.doctor import gateway, home, models, notes, store
from dodona.cli.doctor.finding import Finding
from dodona.net.redactor import Redactor


def local(config: Config, credentials: Credentials) -> Iterator[Finding]:
    """What this machine tells. It blocks."""
    yield from home.look(config)
    yield from store.look(config, credentials)
    yield from notes.look(config)


async def remote(
    config: Config, credentials: Credentials, redactor: Redactor
) -> AsyncIterator[Finding]:
    """What others tell: the gateway, and those who serve models."""
    async for finding in gateway.look(config, credentials):
        yield finding
    async for finding in models.look(config, credentials, redactor):
        yield finding
