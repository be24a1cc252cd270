"""Which addresses may be fetched once a stranger's text has been read.

A page can ask an agent to fetch an address that carries away what the agent knows. So from then
on it fetches only addresses that the user typed or a search returned, and no other can be made up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dodona.core.errors import AccessDenied, ToolRetry
from dodona.net.urls import WebAddress, parse_url

_REASON = (
    "after text from the web has entered this conversation, only addresses that the user typed or "
    "a search returned can be fetched"
)


class UrlAllowlist:
    """The check of one call's addresses: the first, and those it is redirected to.

    A redirect may lead anywhere on its own host, `www.` or not, for the page chose it and not the
    model; to another host it may not. None as `urls` allows any address.
    """

    def __init__(self, urls: Iterable[str] | None) -> None:
        self._allowed_urls = None if urls is None else frozenset(_normalize_urls(urls))
        self._first_address: WebAddress | None = None

    def check(self, address: WebAddress) -> None:
        """AccessDenied when the address may not be asked."""
        first, self._first_address = self._first_address, self._first_address or address
        if self._allowed_urls is None or address.url in self._allowed_urls:
            return
        if first is None:
            raise AccessDenied(
                f"{address.url} is not fetched: {_REASON}.",
                hint="Search for it, or ask the user to name the address.",
            )
        if _site_of(first) != _site_of(address):
            raise AccessDenied(
                f"{first.url} redirects to {address.url}, which is not fetched: {_REASON}.",
                hint="Tell the user this address: when they name it, it can be fetched.",
            )


def _normalize_urls(urls: Iterable[str]) -> Iterator[str]:
    """The normal forms; what was typed for http may be asked by https."""
    for text in urls:
        try:
            address = parse_url(text)
        except (AccessDenied, ToolRetry):
            continue  # no address that could be fetched
        yield address.url
        if address.scheme == "http" and address.port == 80:
            yield WebAddress("https", address.host, 443, address.target, address.ip).url


def _site_of(address: WebAddress) -> str:
    return address.host.removeprefix("www.")
