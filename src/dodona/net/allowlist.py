"""Hosts that the operator named: they may be reached though they are in a private network."""

from __future__ import annotations

import re
from collections.abc import Iterable

from dodona.core.errors import AccessDenied, ConfigError, ToolRetry
from dodona.net.addresses import parse_ip
from dodona.net.urls import WebAddress, parse_url

_HOST_PORT = re.compile(r"[^\s/?#@\\]*[^\s/?#@\\:]")


class HostAllowlist:
    """Each is for its `host:port`, or for all web ports of a `host`, by the name that was given.

    A name that resolves to the same address as an exempt one is not exempt itself.
    """

    def __init__(self, entries: Iterable[str] = ()) -> None:
        self._endpoints = frozenset(map(_parse_entry, entries))

    def lists_port(self, address: WebAddress) -> bool:
        return (address.host, address.port) in self._endpoints

    def allows(self, address: WebAddress) -> bool:
        return self.lists_port(address) or (address.host, None) in self._endpoints


def _parse_entry(text: str) -> tuple[str, int | None]:
    """The host in its normal form and the port, if the text has one."""
    bare = parse_ip(text)
    if bare is not None:
        return str(bare), None
    wrong = ConfigError(
        f"'{text[:80]}' is no host.", hint="Write a host, or host:port, without http://."
    )
    if not _HOST_PORT.fullmatch(text):
        raise wrong
    try:
        address = parse_url(f"http://{text}")
    except (ToolRetry, AccessDenied):
        raise wrong from None
    has_port = ":" in text.rpartition("]")[2]
    return address.host, address.port if has_port else None
