"""The web: its tools, one file each, and what they read pages with."""

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
    """Register web_search, and web_fetch when there is `http` to fetch with.

    Without an engine web_search says that there is none.
    """
    search.add(registry, engine, seconds=limits.timeout_seconds)
    if http is not None:
        fetch.add(
            registry,
            http,
            politeness=PolitenessPolicy(http, obey_robots=obey_robots),
            limits=limits,
        )
