"""The host names this server answers to. Any other name suggests DNS rebinding."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from starlette.types import Scope

from dodona.gateway.settings import GatewaySettings

_LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "[::1]")
_HTTP_PORT = 80  # browsers omit it from the Host header


@lru_cache(maxsize=64)
def own_hosts(address: str, port: int) -> frozenset[str]:
    """Return the Host headers that name this machine, or the address it was reached at."""
    names = {*_LOOPBACK_HOSTS, f"[{address}]" if ":" in address else address} - {""}
    own = {f"{name}:{port}" for name in names}
    return frozenset(own | names if port == _HTTP_PORT else own)


@lru_cache(maxsize=64)
def allowed_hosts(settings: GatewaySettings, address: str, port: int) -> frozenset[str]:
    """Return the Host headers to accept: this machine's and the configured ones."""
    return own_hosts(address, port) | set(settings.hosts)


@lru_cache(maxsize=64)
def allowed_origins(settings: GatewaySettings, address: str, port: int) -> frozenset[str]:
    """Return the Origin headers of our own pages. Configured hosts may use TLS at a proxy."""
    plain = {f"http://{host}" for host in allowed_hosts(settings, address, port)}
    return frozenset(plain | {f"https://{host}" for host in settings.hosts})


def server_address(scope: Scope) -> tuple[str, int]:
    """Return the local address and port of the connection."""
    address, port = scope.get("server") or ("", 0)
    return address.partition("%")[0], port or 0


def header_values(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> list[str]:
    """Return all values of a header, in lower case."""
    return [value.decode("latin-1").strip().lower() for key, value in headers if key == name]
