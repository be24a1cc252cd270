"""Brave Search, through its API with a key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlencode

from dodona.core.errors import ToolFailed
from dodona.net.egress_guard import FetchLimits, GuardedHttp
from dodona.tools.web.engines.engine import (
    Hit,
    normalize_hits,
    read_json,
    records_at,
    text_of,
    without_redirects,
)
from dodona.tools.web.markup import read_html

ENDPOINT: Final = "https://api.search.brave.com/res/v1/web/search"
MAX_QUERY_CHARS: Final = 400
MAX_QUERY_WORDS: Final = 50

# Sent with status 422, which an invalid query gets too.
_INVALID_KEY_CODE: Final = b"SUBSCRIPTION_TOKEN_INVALID"


class Brave:
    """The Brave Search engine."""

    def __init__(
        self, http: GuardedHttp, limits: FetchLimits, *, key: str, endpoint: str = ENDPOINT
    ) -> None:
        self._http = http
        self._limits = without_redirects(limits)
        self._key = key
        self._endpoint = endpoint

    async def search(self, query: str, limit: int) -> list[Hit]:
        words = " ".join(query.split()[:MAX_QUERY_WORDS])[:MAX_QUERY_CHARS]
        url = f"{self._endpoint}?{urlencode({'q': words, 'count': limit})}"
        headers = {"X-Subscription-Token": self._key, "Accept": "application/json"}
        response = await self._http.get(url, limits=self._limits, headers=headers)
        if response.status in {401, 403} or (
            response.status == 422 and _INVALID_KEY_CODE in response.body
        ):
            raise ToolFailed(
                "Brave rejected the API key.", hint="The operator must check web.brave_api_key."
            )
        if response.status == 429:
            raise ToolFailed("Brave's rate limit is reached.", hint="Try again later.")
        if response.status != 200:
            raise ToolFailed(f"Brave returned status {response.status}.", hint="Try again later.")
        rows = records_at(read_json(response, "Brave"), "web", "results")
        hits = (
            Hit(text_of(r, "url"), _plain_text(r, "title"), _plain_text(r, "description"))
            for r in rows
        )
        return normalize_hits(hits, limit)


def _plain_text(record: Mapping[str, Any], name: str) -> str:
    """Return a field without the tags that highlight query words."""
    return read_html(text_of(record, name)).text()
