"""The web's tools from the settings. What fetches pages and what searches have a gate each.

A model may fetch what `web.allow` names. The search engine's address is the operator's as well, but
only its own requests go there: no page of a server in the house is read because it searches.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import AsyncExitStack
from typing import Final, assert_never
from urllib.parse import urlsplit

from dodona import __version__
from dodona.app.config.config import Config
from dodona.app.models.credentials import Credentials
from dodona.core.errors import ConfigError
from dodona.net.egress_guard import FetchLimits, GuardedHttp
from dodona.tools.registry import ToolRegistry
from dodona.tools.web import add_web_tools
from dodona.tools.web.engines import Brave, DuckDuckGo, SearchEngine, SearXng

USER_AGENT: Final = f"Dodona/{__version__} (+agent)"
BRAVE_KEY_SOURCE: Final = "env:BRAVE_API_KEY"


async def register_web_tools(
    registry: ToolRegistry, config: Config, credentials: Credentials, stack: AsyncExitStack
) -> None:
    """Register the web's tools; their connections close with the stack."""
    web = config.settings.web
    limits = FetchLimits(timeout_seconds=web.timeout_seconds, max_bytes=web.max_kb * 1024)
    fetching: GuardedHttp | None = None
    if web.fetch:
        fetching = await stack.enter_async_context(_guarded_http(config, "allow", web.allow))
    engine = await _search_engine(config, credentials, stack, limits)
    add_web_tools(registry, engine=engine, http=fetching, limits=limits, obey_robots=web.robots)


def _guarded_http(config: Config, setting: str, hosts: Iterable[str]) -> GuardedHttp:
    """A gate through which the hosts that a setting names can be reached."""
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
            # Where nobody says where the key is, it is the engine that asks for one.
            named = "brave_api_key" if web.brave_api_key else "search"
            source = web.brave_api_key or BRAVE_KEY_SOURCE
            secret = await asyncio.to_thread(credentials.resolve, source, ("web", named))
            http = await stack.enter_async_context(GuardedHttp(USER_AGENT))
            return Brave(http, limits, key=secret.reveal())
        case "searxng":
            base = _searxng_url(config)
            gate = _guarded_http(config, "searxng_url", [_host_and_port(base)])
            http = await stack.enter_async_context(gate)
            return SearXng(http, limits, base_url=base)
        case _:
            assert_never(web.search)


def _searxng_url(config: Config) -> str:
    base = config.settings.web.searxng_url
    if base is None:
        raise ConfigError(
            'web.search is "searxng", but nobody says where it is.',
            where=config.origins.of(("web", "search")),
            hint='Set web.searxng_url, like "http://127.0.0.1:8888".',
        )
    return base


def _host_and_port(url: str) -> str:
    """The `host:port` of an address that the settings have checked."""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return f"{parts.netloc.removesuffix(f':{parts.port}')}:{port}"
