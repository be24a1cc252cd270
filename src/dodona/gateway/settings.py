"""Settings of the gateway: host names, proxies, limits and timeouts."""

from __future__ import annotations

from dataclasses import dataclass, field

from dodona.core.errors import ConfigError
from dodona.net.urls import is_host, is_ip


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLimits:
    """The local operator is exempt from rate limits, but not from global limits.

    Limits per address count an IPv6 /64 network as one address, because one customer owns it.
    """

    token_rate: int = 600  # requests per token and minute
    address_rate: int = 1_200  # requests per address and minute
    connections: int = 20_000  # open connections in total
    address_connections: int = 200  # open connections per remote address
    in_flight: int = 2_000  # concurrent requests in total, including streams
    user_in_flight: int = 64  # concurrent requests per user
    user_runs: int = 32  # queued and running runs per user
    auth_failures: int = 10  # invalid tokens per address and minute, before a cooldown
    cooldown: float = 60.0  # seconds in which unknown tokens from that address are rejected


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings:
    """`hosts` are Host headers to accept in addition to the server's own address: NAME:PORT.

    A name without a port means the default port, as behind a proxy. `proxies` are addresses whose
    X-Forwarded-For header is trusted. With `needs_token`, local requests need a token too, because
    the gateway can be reached from the network.
    """

    hosts: tuple[str, ...] = ()
    proxies: tuple[str, ...] = ()
    needs_token: bool = False
    limits: RequestLimits = field(default_factory=RequestLimits)
    max_head_bytes: int = 32 << 10  # bytes
    head_timeout: float = 30.0  # seconds for a request line and its headers
    max_body_bytes: int = 1 << 20  # bytes
    body_timeout: float = 30.0  # seconds from the headers of a request to the end of its body
    heartbeat_interval: float = 15.0  # seconds of silence before a stream sends a heartbeat

    def __post_init__(self) -> None:
        for proxy in self.proxies:
            if not is_ip(proxy):
                raise ConfigError(
                    f"{proxy!r:.80} is not an IP address of a proxy.",
                    hint='Write an IP address, such as "127.0.0.1" or "::1".',
                )
        for host in self.hosts:
            if not is_host(host):
                raise ConfigError(
                    f"{host!r:.80} is not a valid host.",
                    hint="Write it as browsers send it: NAME or NAME:PORT, in lower case.",
                )
