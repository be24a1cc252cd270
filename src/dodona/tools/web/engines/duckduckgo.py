"""DuckDuckGo, through its HTML page for browsers without JavaScript."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final
from urllib.parse import parse_qs, urlencode, urlsplit

from dodona.core.errors import ToolFailed
from dodona.net.egress_guard import FetchLimits, FetchResponse, GuardedHttp
from dodona.tools.web.documents import decode_body
from dodona.tools.web.engines.engine import Hit, normalize_hits, without_redirects
from dodona.tools.web.markup import Element, read_html

ENDPOINT: Final = "https://html.duckduckgo.com/html/"


class DuckDuckGo:
    """The DuckDuckGo engine."""

    def __init__(self, http: GuardedHttp, limits: FetchLimits, *, endpoint: str = ENDPOINT) -> None:
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
