"""Where a request comes from, as far as somebody can be believed who says so."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import lru_cache
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Final

from starlette.types import Scope

from dodona.gateway.security.hosts import header_values

# Headers by which those in front of us say that they are.
_PROXY_HEADERS: Final = frozenset(
    {
        *(b"forwarded", b"via", b"x-real-ip", b"x-client-ip", b"x-cluster-client-ip"),
        *(b"true-client-ip", b"cf-connecting-ip", b"cf-ray", b"cdn-loop", b"fastly-client-ip"),
        *(b"x-proxyuser-ip", b"x-original-host", b"x-original-url", b"x-original-forwarded-for"),
        *(b"x-envoy-external-address", b"x-amzn-trace-id", b"x-arr-log-id", b"client-ip"),
        *(b"proxy-connection", b"ngrok-trace-id"),
    }
)
_FORWARDED_PREFIX: Final = b"x-forwarded-"
_MAX_ADDRESS_LENGTH: Final = 64  # characters of an address


def is_proxied(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Does the request say that somebody passed it on?"""
    return any(name in _PROXY_HEADERS or name.startswith(_FORWARDED_PREFIX) for name, _ in headers)


def address_of(scope: Scope, proxies: Collection[str] = ()) -> str:
    """Who asks: the other end of the connection.

    If that is one of our proxies it is the last address in X-Forwarded-For that is not, since
    everything before it could have been made up by whoever asks.
    """
    peer = _normalize_address((scope.get("client") or ("", 0))[0])
    if peer not in proxies:
        return peer
    listed = ",".join(header_values(scope["headers"], b"x-forwarded-for")).split(",")
    for text in reversed(listed):
        found = _normalize_address(text.strip())
        if not found:
            break  # whatever this is, nothing before it can be believed
        if found not in proxies:
            return found
    return peer


@lru_cache(maxsize=4096)
def client_key(address: str) -> str:
    """What limits count by: an address, of IPv6 its network."""
    try:
        found = ip_address(address)
    except ValueError:
        return address
    if isinstance(found, IPv6Address) and not found.is_loopback:
        return str(ip_network((found, 64), strict=False))
    return str(found)


@lru_cache(maxsize=4096)
def is_loopback(address: str) -> bool:
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return False


@lru_cache(maxsize=4096)
def _normalize_address(text: str) -> str:
    """The address as it is written everywhere; empty for what is none."""
    bare = text[:_MAX_ADDRESS_LENGTH].removeprefix("[").partition("]")[0].partition("%")[0]
    if bare.count(":") == 1:  # 192.0.2.1:4711
        bare = bare.partition(":")[0]
    try:
        found = ip_address(bare)
    except ValueError:
        return ""
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return str(mapped or found)
