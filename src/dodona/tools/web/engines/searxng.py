"""SearXNG: a search engine of one's own, asked by its JSON interface."""

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
    def __init__(self, http: GuardedHttp, limits: FetchLimits, *, base_url: str) -> None:
        self._http = http
        self._limits = without_redirects(limits)
        self._endpoint = base_url.rstrip("/") + "/search"

    async def search(self, query: str, limit: int) -> list[Hit]:
        url = f"{self._endpoint}?{urlencode({'q': query, 'format': 'json'})}"
        answer = await self._http.get(url, limits=self._limits)
        if answer.status == 403:
            raise ToolFailed(
                "SearXNG does not answer in JSON.",
                hint="Its operator must add json to search.formats in settings.yml.",
            )
        if answer.status != 200:
            raise ToolFailed(f"SearXNG answers {answer.status}.", hint="Try again later.")
        said = read_json(answer, "SearXNG")
        rows = records_at(said, "results")
        hits = (Hit(text_of(r, "url"), text_of(r, "title"), text_of(r, "content")) for r in rows)
        found = normalize_hits(hits, limit)
        if not found and list_at(said, "unresponsive_engines"):
            raise ToolFailed(
                "SearXNG found nothing, and some of its engines did not answer.",
                hint="Try again later.",
            )
        return found
