"""The client address of a request. Forwarding headers count only from trusted proxies."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import lru_cache
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Final

from starlette.types import Scope

from dodona.gateway.security.hosts import header_values

# Headers that proxies, load balancers, content delivery networks and tunnels add. Some of them
# write "_" for "-".
_PROXY_HEADERS: Final = frozenset(
    {
        *(b"via", b"remote-user", b"x-host", b"x-scheme", b"x-url-scheme", b"front-end-https"),
        *(b"x-rewrite-url", b"cdn-loop", b"coming-from", b"x-coming-from", b"x-varnish"),
        *(b"x-cloud-trace-context", b"x-amzn-trace-id", b"x-cluster-client", b"x-nginx-proxy"),
    }
)
_PROXY_PREFIXES: Final = (
    *(b"forward", b"x-forward", b"x-original-", b"x-real-", b"x-proxy", b"proxy-", b"x-remote-"),
    *(b"cf-", b"cloudfront-", b"x-amz-cf-", b"x-amzn-oidc-", b"x-amzn-mtls-", b"x-azure-"),
    *(b"x-arr-", b"x-appgw-", b"x-appengine-", b"x-goog-iap-", b"x-goog-authenticated-"),
    *(b"fastly-", b"fly-", b"akamai-", b"x-akamai-", b"x-envoy-", b"x-vercel-", b"x-nf-"),
    *(b"ngrok-", b"tailscale-", b"x-auth-request-", b"x-pomerium-", b"x-ms-client-principal"),
)
# X-Client-IP, X-Originating-IP, X-Sucuri-ClientIP, Remote-Addr, X-Via, …
_PROXY_SUFFIXES: Final = (
    *(b"-ip", b"clientip", b"-addr", b"-address", b"-via"),
    *(b"forwarded-for", b"forwarded-host", b"forwarded-proto"),
)
_MAX_ADDRESS_LENGTH: Final = 64  # characters of an address


def is_proxied(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether the headers show that a proxy forwarded the request."""
    return any(_is_proxy_header(name.replace(b"_", b"-")) for name, _ in headers)


def _is_proxy_header(name: bytes) -> bool:
    return (
        name in _PROXY_HEADERS or name.startswith(_PROXY_PREFIXES) or name.endswith(_PROXY_SUFFIXES)
    )


def address_of(scope: Scope, proxies: Collection[str] = ()) -> str:
    """Return the address of the client: the peer of the connection.

    If the peer is a trusted proxy, return the last address in X-Forwarded-For that is not a trusted
    proxy. The client can forge everything before it.
    """
    peer = _normalize_address((scope.get("client") or ("", 0))[0])
    if peer not in proxies:
        return peer
    listed = ",".join(header_values(scope["headers"], b"x-forwarded-for")).split(",")
    for text in reversed(listed):
        address = _normalize_address(text.strip())
        if not address:
            break  # not an address: nothing before it can be trusted
        if address not in proxies:
            return address
    return peer


@lru_cache(maxsize=4096)
def client_key(address: str) -> str:
    """Return the key that limits count by: the address, or the /64 network of an IPv6 address."""
    try:
        ip = ip_address(address)
    except ValueError:
        return address
    if isinstance(ip, IPv6Address) and not ip.is_loopback:
        return str(ip_network((ip, 64), strict=False))
    return str(ip)


@lru_cache(maxsize=4096)
def is_loopback(address: str) -> bool:
    """Whether an address is a loopback address of this machine."""
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return False


@lru_cache(maxsize=4096)
def _normalize_address(text: str) -> str:
    """Return an address in canonical form; empty if the text is not an address."""
    bare = text[:_MAX_ADDRESS_LENGTH].removeprefix("[").partition("]")[0].partition("%")[0]
    if bare.count(":") == 1:  # 192.0.2.1:4711
        bare = bare.partition(":")[0]
    try:
        ip = ip_address(bare)
    except ValueError:
        return ""
    mapped = ip.ipv4_mapped if isinstance(ip, IPv6Address) else None
    return str(mapped or ip)
