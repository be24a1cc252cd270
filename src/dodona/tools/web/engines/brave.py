"""Brave Search, asked by its API with a key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlencode

from dodona.core.errors import ToolFailed
from dodona.net.egress_guard import GuardedHttp, Limits
from dodona.tools.web.engines.engine import Hit, at_home, kept, read_json, records, text_of
from dodona.tools.web.markup import read_html

ENDPOINT: Final = "https://api.search.brave.com/res/v1/web/search"
LONGEST_QUERY: Final = 400  # characters
MOST_WORDS: Final = 50

_BAD_KEY: Final = b"SUBSCRIPTION_TOKEN_INVALID"  # a 422, like a query that it does not take


class Brave:
    def __init__(
        self, http: GuardedHttp, limits: Limits, *, key: str, endpoint: str = ENDPOINT
    ) -> None:
        self._http = http
        self._limits = at_home(limits)
        self._key = key
        self._endpoint = endpoint

    async def search(self, query: str, limit: int) -> list[Hit]:
        words = " ".join(query.split()[:MOST_WORDS])[:LONGEST_QUERY]
        url = f"{self._endpoint}?{urlencode({'q': words, 'count': limit})}"
        headers = {"X-Subscription-Token": self._key, "Accept": "application/json"}
        answer = await self._http.get(url, limits=self._limits, headers=headers)
        if answer.status in {401, 403} or (answer.status == 422 and _BAD_KEY in answer.body):
            raise ToolFailed(
                "Brave refuses the key.", hint="Its operator must check web.brave_api_key."
            )
        if answer.status == 429:
            raise ToolFailed("Brave takes no more searches for now.", hint="Try again later.")
        if answer.status != 200:
            raise ToolFailed(f"Brave answers {answer.status}.", hint="Try again later.")
        rows = records(read_json(answer, "Brave"), "web", "results")
        hits = (Hit(text_of(r, "url"), _plain(r, "title"), _plain(r, "description")) for r in rows)
        return kept(hits, limit)


def _plain(record: Mapping[str, Any], name: str) -> str:
    """Without the marks around words that were asked for."""
    return read_html(text_of(record, name)).text()
