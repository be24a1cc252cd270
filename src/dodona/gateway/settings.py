"""What the door lets through."""

from __future__ import annotations

from dataclasses import dataclass, field

from dodona.core.errors import ConfigError
from dodona.net.urls import is_host, is_ip


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLimits:
    """The operator on this machine has no rate; what is for all counts for the operator too.

    An address is what limits tell apart: of IPv6 the network of it (/64), which is one customer's.
    """

    token_rate: int = 600  # requests of a token, a minute
    address_rate: int = 1_200  # requests of an address, a minute
    connections: int = 20_000  # of all
    address_connections: int = 200  # of an address that is not this machine
    in_flight: int = 2_000  # requests of all at once, streams among them
    user_in_flight: int = 64  # requests of a user at once
    user_runs: int = 32  # runs of a user that wait or go on
    auth_failures: int = 10  # wrong tokens of an address, a minute
    cooldown: float = 60.0  # seconds in which no new token of that address is looked at


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings:
    """`hosts` are Host headers to take beside our own address, as browsers send them: NAME:PORT.

    A name alone stands for the default port, as behind a proxy. `proxies` are addresses that are
    believed when they say for whom they ask. `needs_token`: nobody is the operator just by coming
    from this machine, because others can reach us too.
    """

    hosts: tuple[str, ...] = ()
    proxies: tuple[str, ...] = ()
    needs_token: bool = False
    limits: RequestLimits = field(default_factory=RequestLimits)
    max_head_bytes: int = 32 << 10  # bytes
    head_timeout: float = 30.0  # until the head of a request is there
    max_body_bytes: int = 1 << 20  # bytes
    body_timeout: float = 30.0  # from the head of a request to the end of its body
    heartbeat_interval: float = 15.0  # seconds after which a silent stream gives a sign of life

    def __post_init__(self) -> None:
        for proxy in self.proxies:
            if not is_ip(proxy):
                raise ConfigError(
                    f"{proxy!r:.80} is no address of a proxy.",
                    hint='Write it as numbers, like "127.0.0.1" or "::1".',
                )
        for host in self.hosts:
            if not is_host(host):
                raise ConfigError(
                    f"{host!r:.80} is no host.",
                    hint="Write it as browsers send it: a name or NAME:PORT, in lower case.",
                )
