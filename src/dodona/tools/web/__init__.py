"""The web: its tools, one file each, and what they read pages with."""

from __future__ import annotations

from dodona.net.egress_guard import GuardedHttp, Limits
from dodona.tools.registry import ToolRegistry
from dodona.tools.web import fetch, search
from dodona.tools.web.engines import Engine
from dodona.tools.web.politeness import Manners

__all__ = ["TOOLS", "add_web_tools"]

TOOLS = (search, fetch)


def add_web_tools(
    registry: ToolRegistry,
    *,
    engine: Engine | None,
    http: GuardedHttp | None,
    limits: Limits,
    obeys_robots: bool = True,
) -> None:
    """Register web_search, and web_fetch when there is `http` to fetch with.

    Without an engine web_search says that there is none.
    """
    search.add(registry, engine, seconds=limits.seconds)
    if http is not None:
        fetch.add(registry, http, manners=Manners(http, obeys=obeys_robots), limits=limits)
