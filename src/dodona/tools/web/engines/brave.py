"""Brave Search, asked by its API with a key."""

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
MAX_QUERY_CHARS: Final = 400  # characters
MAX_QUERY_WORDS: Final = 50

_INVALID_KEY_CODE: Final = (
    b"SUBSCRIPTION_TOKEN_INVALID"  # a 422, like a query that it does not take
)


class Brave:
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
        answer = await self._http.get(url, limits=self._limits, headers=headers)
        if answer.status in {401, 403} or (
            answer.status == 422 and _INVALID_KEY_CODE in answer.body
        ):
            raise ToolFailed(
                "Brave refuses the key.", hint="Its operator must check web.brave_api_key."
            )
        if answer.status == 429:
            raise ToolFailed("Brave takes no more searches for now.", hint="Try again later.")
        if answer.status != 200:
            raise ToolFailed(f"Brave answers {answer.status}.", hint="Try again later.")
        rows = records_at(read_json(answer, "Brave"), "web", "results")
        hits = (
            Hit(text_of(r, "url"), _plain_text(r, "title"), _plain_text(r, "description"))
            for r in rows
        )
        return normalize_hits(hits, limit)


def _plain_text(record: Mapping[str, Any], name: str) -> str:
    """Without the marks around words that were asked for."""
    return read_html(text_of(record, name)).text()
