"""A gateway in the process of the test, so that it may have tools of the test's own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp

from dodona.agent.api import AgentApi
from dodona.app.bootstrap import open_runtime
from dodona.app.config.config import load_config
from dodona.app.extensions.loading import ExtensionLoader
from dodona.app.models.credentials import Credentials
from dodona.net.redactor import Redactor
from dodona.tools.registry import FunctionTool
from tests.gateway.talking import gateway_up
from tests.system.client import Client
from tests.system.dodona_up import Home
from tests.system.wire_model import Script


@dataclass
class Inside:
    """As a `Client` sees it, a gateway like any other."""

    url: str
    home: Home
    api: AgentApi


@asynccontextmanager
async def served_inside(
    home: Home,
    session: aiohttp.ClientSession,
    script: Script,
    tools: Sequence[FunctionTool],
) -> AsyncIterator[Client]:
    """Serve what the home's config says, with these tools too, until the block ends."""
    redactor = Redactor()
    environment = {**home.environment, "DODONA_HOME": str(home.data)}  # ~ is that of this process
    config = await asyncio.to_thread(load_config, environment, home.config, has_extensions=True)
    credentials = Credentials(config, environment, redactor)
    loader = ExtensionLoader(objects=tools)
    async with (
        open_runtime(config, credentials, redactor, serve=True, loader=loader) as runtime,
        gateway_up(runtime.api, redactor=redactor) as gateway,  # type: ignore[arg-type]
    ):
        inside: Any = Inside(gateway.url, home, runtime.api)
        yield Client(session, inside, project="default", tag=script.tag)
