"""Search engines, one module each."""

from __future__ import annotations

from dodona.tools.web.engines.brave import Brave
from dodona.tools.web.engines.duckduckgo import DuckDuckGo
from dodona.tools.web.engines.engine import Hit, SearchEngine
from dodona.tools.web.engines.searxng import SearXng

__all__ = ["Brave", "DuckDuckGo", "Hit", "SearXng", "SearchEngine"]
