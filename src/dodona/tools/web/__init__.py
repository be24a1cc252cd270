"""The web tools, one module each, and the code that reads web pages."""

from __future__ import annotations

from dodona.net.egress_guard import FetchLimits, GuardedHttp
from dodona.tools.registry import ToolRegistry
from dodona.tools.web import fetch, search
from dodona.tools.web.engines import SearchEngine
from dodona.tools.web.politeness import PolitenessPolicy

__all__ = ["TOOLS", "add_web_tools"]

TOOLS = (search, fetch)


def add_web_tools(
    registry: ToolRegistry,
    *,
    engine: SearchEngine | None,
    http: GuardedHttp | None,
    limits: FetchLimits,
    obey_robots: bool = True,
) -> None:
    """Register web_search, and web_fetch if there is an `http` client.

    Without an engine, web_search answers that none is configured.
    """
    search.add(registry, engine, seconds=limits.timeout_seconds)
    if http is not None:
        fetch.add(
            registry,
            http,
            politeness=PolitenessPolicy(http, obey_robots=obey_robots),
            limits=limits,
        )
