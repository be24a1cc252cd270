"""Hosts that the operator allows even though they are on a private network."""

from __future__ import annotations

import re
from collections.abc import Iterable

from dodona.core.errors import AccessDenied, ConfigError, ToolRetry
from dodona.net.addresses import parse_ip
from dodona.net.urls import WebAddress, parse_url

_HOST_PORT = re.compile(r"[^\s/?#@\\]*[^\s/?#@\\:]")


class HostAllowlist:
    """Allowed hosts, each as `host:port` or as `host` for all its web ports.

    Entries match by name: another name for the same address is not allowed.
    """

    def __init__(self, entries: Iterable[str] = ()) -> None:
        self._endpoints = frozenset(map(_parse_entry, entries))

    def lists_port(self, address: WebAddress) -> bool:
        """Return whether an entry names this host with this port."""
        return (address.host, address.port) in self._endpoints

    def allows(self, address: WebAddress) -> bool:
        """Return whether an entry names this host, with this port or without a port."""
        return self.lists_port(address) or (address.host, None) in self._endpoints


def _parse_entry(text: str) -> tuple[str, int | None]:
    """Return the normalized host, and the port if the entry has one."""
    ip = parse_ip(text)
    if ip is not None:
        return str(ip), None
    error = ConfigError(
        f"'{text[:80]}' is not a valid host.",
        hint="Write host or host:port, without http:// and without a path.",
    )
    if not _HOST_PORT.fullmatch(text):
        raise error
    try:
        address = parse_url(f"http://{text}")
    except (ToolRetry, AccessDenied):
        raise error from None
    has_port = ":" in text.rpartition("]")[2]
    return address.host, address.port if has_port else None
