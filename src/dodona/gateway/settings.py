"""What the door lets through."""

from __future__ import annotations

from dataclasses import dataclass, field

from dodona.core.errors import ConfigError
from dodona.core.limits import Limits
from dodona.net.hosts import is_host, is_ip


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
    limits: Limits = field(default_factory=Limits)
    largest_head: int = 32 << 10  # bytes
    head_seconds: float = 30.0  # until the head of a request is there
    largest_body: int = 1 << 20  # bytes
    body_seconds: float = 30.0  # from the head of a request to the end of its body
    heartbeat: float = 15.0  # seconds after which a silent stream gives a sign of life

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
