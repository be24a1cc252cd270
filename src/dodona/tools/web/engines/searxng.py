"""SearXNG, a self-hosted search engine, through its JSON API."""

from __future__ import annotations

from urllib.parse import urlencode

from dodona.core.errors import ToolFailed
from dodona.net.egress_guard import FetchLimits, GuardedHttp
from dodona.tools.web.engines.engine import (
    Hit,
    list_at,
    normalize_hits,
    read_json,
    records_at,
    text_of,
    without_redirects,
)


class SearXng:
    """The SearXNG engine at `base_url`."""

    def __init__(self, http: GuardedHttp, limits: FetchLimits, *, base_url: str) -> None:
        self._http = http
        self._limits = without_redirects(limits)
        self._endpoint = base_url.rstrip("/") + "/search"

    async def search(self, query: str, limit: int) -> list[Hit]:
        url = f"{self._endpoint}?{urlencode({'q': query, 'format': 'json'})}"
        response = await self._http.get(url, limits=self._limits)
        if response.status == 403:
            raise ToolFailed(
                "SearXNG does not allow JSON responses.",
                hint="The SearXNG operator must add json to search.formats in settings.yml.",
            )
        if response.status != 200:
            raise ToolFailed(f"SearXNG returned status {response.status}.", hint="Try again later.")
        data = read_json(response, "SearXNG")
        rows = records_at(data, "results")
        hits = (Hit(text_of(r, "url"), text_of(r, "title"), text_of(r, "content")) for r in rows)
        results = normalize_hits(hits, limit)
        if not results and list_at(data, "unresponsive_engines"):
            raise ToolFailed(
                "SearXNG found nothing, and some of its engines did not answer.",
                hint="Try again later.",
            )
        return results
