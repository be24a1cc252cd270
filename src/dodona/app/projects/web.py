"""Registers the web tools. Fetching and searching have separate HTTP clients.

Models can fetch the local hosts in `web.allow`. The host of a local search engine is open only
to search requests, so that a model cannot fetch other pages from it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import AsyncExitStack
from typing import Final, assert_never
from urllib.parse import urlsplit

from dodona.app.config.config import Config
from dodona.app.models.credentials import Credentials
from dodona.core.errors import ConfigError
from dodona.core.version import __version__
from dodona.net.egress_guard import FetchLimits, GuardedHttp
from dodona.tools.registry import ToolRegistry
from dodona.tools.web import add_web_tools
from dodona.tools.web.engines import Brave, DuckDuckGo, SearchEngine, SearXng

USER_AGENT: Final = f"Dodona/{__version__} (+agent)"
BRAVE_KEY_SOURCE: Final = "env:BRAVE_API_KEY"


async def register_web_tools(
    registry: ToolRegistry, config: Config, credentials: Credentials, stack: AsyncExitStack
) -> None:
    """Register the web tools. Their connections close with the stack."""
    web = config.settings.web
    limits = FetchLimits(timeout_seconds=web.timeout_seconds, max_bytes=web.max_kb * 1024)
    http: GuardedHttp | None = None
    if web.fetch:
        http = await stack.enter_async_context(_guarded_http(config, "allow", web.allow))
    engine = await _search_engine(config, credentials, stack, limits)
    add_web_tools(registry, engine=engine, http=http, limits=limits, obey_robots=web.robots)


def _guarded_http(config: Config, setting: str, hosts: Iterable[str]) -> GuardedHttp:
    """Return an HTTP client that may also connect to these local hosts."""
    try:
        return GuardedHttp(USER_AGENT, exempt_hosts=hosts)
    except ConfigError as error:
        raise ConfigError(
            f"web.{setting}: {error.message}",
            where=config.origins.of(("web", setting)),
            hint=error.hint,
        ) from error


async def _search_engine(
    config: Config, credentials: Credentials, stack: AsyncExitStack, limits: FetchLimits
) -> SearchEngine | None:
    web = config.settings.web
    match web.search:
        case "none":
            return None
        case "duckduckgo":
            http = await stack.enter_async_context(GuardedHttp(USER_AGENT))
            return DuckDuckGo(http, limits)
        case "brave":
            # Without web.brave_api_key, errors about the key point to web.search.
            key = "brave_api_key" if web.brave_api_key else "search"
            source = web.brave_api_key or BRAVE_KEY_SOURCE
            secret = await asyncio.to_thread(credentials.resolve, source, ("web", key))
            http = await stack.enter_async_context(GuardedHttp(USER_AGENT))
            return Brave(http, limits, key=secret.reveal())
        case "searxng":
            base_url = _searxng_url(config)
            client = _guarded_http(config, "searxng_url", [_host_and_port(base_url)])
            http = await stack.enter_async_context(client)
            return SearXng(http, limits, base_url=base_url)
        case _:
            assert_never(web.search)


def _searxng_url(config: Config) -> str:
    url = config.settings.web.searxng_url
    if url is None:
        raise ConfigError(
            'web.search is "searxng", but web.searxng_url is not set.',
            where=config.origins.of(("web", "search")),
            hint='Set web.searxng_url, for example to "http://127.0.0.1:8888".',
        )
    return url


def _host_and_port(url: str) -> str:
    """Return the `host:port` of a validated URL."""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return f"{parts.netloc.removesuffix(f':{parts.port}')}:{port}"
