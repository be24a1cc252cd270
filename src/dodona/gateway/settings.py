"""Settings of the gateway: host names, proxies, limits and timeouts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field

from dodona.core.errors import ConfigError
from dodona.documents import Section
from dodona.net.urls import is_host, is_ip

MAX_LIMIT = 10_000_000  # upper bound of every limit
Limit = Annotated[int, Field(ge=1, le=MAX_LIMIT)]


class RequestLimits(Section):
    """The local operator is exempt from rate limits, but not from global limits.

    Limits per address count an IPv6 /64 network as one address, because one customer owns it.
    """

    token_rate: Limit = Field(
        default=600,
        description="Maximum requests per token per minute.",
    )
    address_rate: Limit = Field(
        default=1_200,
        description="Maximum requests per client address per minute.",
    )
    connections: Limit = Field(
        default=20_000,
        description="Maximum open connections in total. The process's limit of open files also "
        "applies: part of it is reserved for the store, files and models.",
    )
    address_connections: Limit = Field(
        default=200,
        description="Maximum open connections per client address. Does not apply to this machine "
        "and to proxies.",
    )
    in_flight: Limit = Field(
        default=2_000,
        description="Maximum concurrent requests in total, including streams.",
    )
    user_in_flight: Limit = Field(
        default=64,
        description="Maximum concurrent requests per user.",
    )
    user_runs: Limit = Field(
        default=32,
        description="Maximum queued and running runs per user.",
    )
    auth_failures: Limit = Field(
        default=10,
        description="Failed logins per address per minute before a cooldown.",
    )
    cooldown: float = Field(
        default=60.0,
        gt=0,
        le=86_400,
        description="The cooldown after too many failed logins, in seconds. Tokens that were "
        "accepted before still work during it.",
    )


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
