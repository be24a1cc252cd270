"""Hosts that the operator named: they may be reached though they are in a private network."""

from __future__ import annotations

import re
from collections.abc import Iterable

from dodona.core.errors import AccessDenied, ConfigError, ToolRetry
from dodona.net.addresses import read_address
from dodona.net.urls import WebAddress, read_url

_PLACE = re.compile(r"[^\s/?#@\\]*[^\s/?#@\\:]")


class Exemptions:
    """Each is for its `host:port`, or for all web ports of a `host`, by the name that was given.

    A name that resolves to the same address as an exempt one is not exempt itself.
    """

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self._places = frozenset(map(_read, texts))

    def names_port(self, address: WebAddress) -> bool:
        return (address.host, address.port) in self._places

    def cover(self, address: WebAddress) -> bool:
        return self.names_port(address) or (address.host, None) in self._places


def _read(text: str) -> tuple[str, int | None]:
    """The host in its normal form and the port, if the text has one."""
    bare = read_address(text)
    if bare is not None:
        return str(bare), None
    wrong = ConfigError(
        f"'{text[:80]}' is no host.", hint="Write a host, or host:port, without http://."
    )
    if not _PLACE.fullmatch(text):
        raise wrong
    try:
        address = read_url(f"http://{text}")
    except (ToolRetry, AccessDenied):
        raise wrong from None
    has_port = ":" in text.rpartition("]")[2]
    return address.host, address.port if has_port else None
