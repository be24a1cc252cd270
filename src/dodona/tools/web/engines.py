"""Search engines: Brave with an API key, DuckDuckGo by its HTML page, a self-hosted SearXNG.

The texts that an engine returns are untrusted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol, cast
from urllib.parse import parse_qs, urlencode, urlsplit

import jiter

from dodona.core.errors import DodonaError, ToolFailed
from dodona.net.egress_guard import FetchLimits, FetchResponse, GuardedHttp
from dodona.net.urls import parse_url
from dodona.tools.web.documents import decode_body
from dodona.tools.web.markup import Element, read_html


@dataclass(frozen=True, slots=True)
class Hit:
    """A page found by an engine. Its texts are untrusted."""

    url: str
    title: str
    snippet: str


class SearchEngine(Protocol):
    """A search engine that the web_search tool can use."""

    async def search(self, query: str, limit: int) -> list[Hit]:
        """Return the best pages, best first. Raises ToolFailed if the engine fails."""
        ...


def without_redirects(limits: FetchLimits) -> FetchLimits:
    """Return the limits for a search request: redirects are not followed.

    `!!g words` makes an engine redirect to another engine with these words, and `!!` to the first
    result. Untrusted text could make a model leak secrets this way, and the API key would go along.
    """
    return FetchLimits(limits.timeout_seconds, limits.max_bytes, max_redirects=0)


def read_json(response: FetchResponse, engine: str) -> object:
    """Parse a JSON response of an engine. Raises ToolFailed if it is not JSON."""
    try:
        return jiter.from_json(response.body)
    except ValueError as error:
        raise ToolFailed(f"{engine} sent an invalid response.") from error


def list_at(value: object, *path: str) -> list[object]:
    """Return the list at `path` in a JSON value, or an empty list."""
    for name in path:
        value = cast("Mapping[str, Any]", value).get(name) if isinstance(value, Mapping) else None
    return cast("list[object]", value) if isinstance(value, list) else []


def records_at(value: object, *path: str) -> Iterator[Mapping[str, Any]]:
    """Yield the objects in the list at `path` in a JSON value."""
    for record in list_at(value, *path):
        if isinstance(record, Mapping):
            yield cast("Mapping[str, Any]", record)


def text_of(record: Mapping[str, Any], name: str) -> str:
    """Return a string field of a record, or ""."""
    value = record.get(name)
    return value if isinstance(value, str) else ""


def normalize_hits(hits: Iterator[Hit], limit: int) -> list[Hit]:
    """Return up to `limit` hits with fetchable, normalized and distinct URLs."""
    by_url: dict[str, Hit] = {}
    for hit in hits:
        try:
            url = parse_url(hit.url).url
        except DodonaError:
            continue
        by_url.setdefault(url, Hit(url, hit.title, hit.snippet))
        if len(by_url) == limit:
            break
    return list(by_url.values())


# -- the engines -----------------------------------------------------------------------------------

BRAVE_ENDPOINT: Final = "https://api.search.brave.com/res/v1/web/search"
MAX_BRAVE_CHARS: Final = 400
MAX_BRAVE_WORDS: Final = 50

# Sent with status 422, which an invalid query gets too.
_INVALID_KEY_CODE: Final = b"SUBSCRIPTION_TOKEN_INVALID"


class Brave:
    """The Brave Search engine."""

    def __init__(
        self, http: GuardedHttp, limits: FetchLimits, *, key: str, endpoint: str = BRAVE_ENDPOINT
    ) -> None:
        self._http = http
        self._limits = without_redirects(limits)
        self._key = key
        self._endpoint = endpoint

    async def search(self, query: str, limit: int) -> list[Hit]:
        words = " ".join(query.split()[:MAX_BRAVE_WORDS])[:MAX_BRAVE_CHARS]
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


DUCKDUCKGO_ENDPOINT: Final = "https://html.duckduckgo.com/html/"


class DuckDuckGo:
    """The DuckDuckGo engine."""

    def __init__(
        self, http: GuardedHttp, limits: FetchLimits, *, endpoint: str = DUCKDUCKGO_ENDPOINT
    ) -> None:
        self._http = http
        self._limits = without_redirects(limits)
        self._endpoint = endpoint

    async def search(self, query: str, limit: int) -> list[Hit]:
        url = f"{self._endpoint}?{urlencode({'q': query})}"
        response = await self._http.get(url, limits=self._limits)
        page = read_html(decode_body(response.body, response.content_type))
        if _requires_captcha(response, page):
            raise ToolFailed(
                "DuckDuckGo requires a CAPTCHA.",
                hint="Try again later, or answer without the web.",
            )
        if response.status != 200:
            raise ToolFailed(
                f"DuckDuckGo returned status {response.status}.", hint="Try again later."
            )
        return normalize_hits(_parse_hits(page), limit)


def _requires_captcha(response: FetchResponse, page: Element) -> bool:
    return response.status in {202, 403, 429} or any(
        name.startswith("anomaly") for element in page.walk() for name in _classes(element)
    )


def _parse_hits(page: Element) -> Iterator[Hit]:
    for element in page.walk():
        classes = _classes(element)
        if "result" not in classes or "result--ad" in classes:
            continue
        parts = {name: below for below in element.walk() for name in _classes(below)}
        link, snippet = parts.get("result__a"), parts.get("result__snippet")
        if link is not None:
            url = _unwrap_redirect(link.attributes.get("href", ""))
            yield Hit(url, link.text(), snippet.text() if snippet else "")


def _classes(element: Element) -> list[str]:
    return element.attributes.get("class", "").split()


def _unwrap_redirect(href: str) -> str:
    """Return the target of a result link, which goes through a tracking redirect."""
    if href.startswith("//"):
        href = f"https:{href}"
    try:
        parts = urlsplit(href)
        wrapped = parse_qs(parts.query).get("uddg", [""])[0]
    except ValueError:
        return ""
    host = parts.hostname or "duckduckgo.com"
    is_internal = host == "duckduckgo.com" or host.endswith(".duckduckgo.com")
    return wrapped if is_internal else href


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
