"""Which URLs may be fetched after untrusted text has been read.

A page can ask an agent to fetch a URL that leaks what the agent knows. From then on, only URLs that
the user typed or that a search returned can be fetched, so the model cannot construct one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dodona.core.errors import AccessDenied, ToolRetry
from dodona.net.urls import WebAddress, parse_url

_REASON = (
    "after text from the web has entered this conversation, only URLs that the user typed or "
    "a search returned can be fetched"
)


class UrlAllowlist:
    """Checks the URLs of one call: the first one and its redirects.

    A redirect may lead anywhere on its own host, with or without `www.`, because the page chose it
    and not the model; it may not lead to another host. None for `urls` allows any URL.
    """

    def __init__(self, urls: Iterable[str] | None) -> None:
        self._allowed_urls = None if urls is None else frozenset(_normalize_urls(urls))
        self._first_address: WebAddress | None = None

    def check(self, address: WebAddress) -> None:
        """Raise AccessDenied if the address may not be fetched."""
        first, self._first_address = self._first_address, self._first_address or address
        if self._allowed_urls is None or address.url in self._allowed_urls:
            return
        if first is None:
            raise AccessDenied(
                f"{address.url} cannot be fetched: {_REASON}.",
                hint="Search for it, or ask the user to type the URL.",
            )
        if _site_of(first) != _site_of(address):
            raise AccessDenied(
                f"{first.url} redirects to {address.url}, which cannot be fetched: {_REASON}.",
                hint="Show the user this URL: if they type it, it can be fetched.",
            )


def _normalize_urls(urls: Iterable[str]) -> Iterator[str]:
    """Yield the URLs in normal form. An http URL also allows its https form."""
    for text in urls:
        try:
            address = parse_url(text)
        except (AccessDenied, ToolRetry):
            continue  # not a fetchable URL
        yield address.url
        if address.scheme == "http" and address.port == 80:
            yield WebAddress("https", address.host, 443, address.target, address.ip).url


def _site_of(address: WebAddress) -> str:
    return address.host.removeprefix("www.")
