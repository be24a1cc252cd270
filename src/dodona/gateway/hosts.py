"""The names this server answers to. Anything else came here by a trick of DNS."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from dodona.gateway.rules import Rules

_OURS = ("127.0.0.1", "localhost", "[::1]")
_HTTP_PORT = 80  # browsers leave it out


@lru_cache(maxsize=64)
def hosts(rules: Rules, port: int) -> frozenset[str]:
    """The Host headers that mean us."""
    own = {f"{name}:{port}" for name in _OURS}
    bare = set(_OURS) if port == _HTTP_PORT else set[str]()
    return frozenset(own | bare | set(rules.hosts))


@lru_cache(maxsize=64)
def origins(rules: Rules, port: int) -> frozenset[str]:
    """The Origin headers of our own pages; a proxy may add TLS to a configured name."""
    plain = {f"http://{host}" for host in hosts(rules, port)}
    return frozenset(plain | {f"https://{host}" for host in rules.hosts})


def only(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> list[str]:
    """The values of a header, in lower case."""
    return [value.decode("latin-1").strip().lower() for key, value in headers if key == name]
