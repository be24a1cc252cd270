"""What the door lets through."""

from __future__ import annotations

import re
from dataclasses import dataclass

from dodona.core.errors import ConfigError

_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9_-]+(\.[a-z0-9_-]+)*)(:[0-9]{1,5})?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """`hosts` are Host headers to take beside our own address, as browsers send them: NAME:PORT.

    A name alone stands for the default port, as behind a proxy.
    """

    hosts: tuple[str, ...] = ()
    largest_head: int = 32 << 10  # bytes
    largest_body: int = 1 << 20  # bytes
    body_seconds: float = 30.0  # from the head of a request to the end of its body
    heartbeat: float = 15.0  # seconds after which a silent stream gives a sign of life

    def __post_init__(self) -> None:
        for host in self.hosts:
            if not _HOST.fullmatch(host):
                raise ConfigError(
                    f"{host!r:.80} is no host.",
                    hint="Write it as browsers send it: a name or NAME:PORT, in lower case.",
                )
