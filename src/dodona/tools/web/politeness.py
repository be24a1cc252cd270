"""How we behave towards a host: we obey its robots.txt, and come one at a time, not too often."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from time import monotonic
from typing import Final, TypeAlias

from dodona.core.errors import AccessDenied, ToolFailed, ToolRetry
from dodona.net.egress_guard import GuardedHttp, Limits
from dodona.net.urls import WebAddress
from dodona.tools.web import robots
from dodona.tools.web.robots import Robots, read_robots

INTERVAL: Final = 1.0  # seconds between two requests to a host that names no time
MOST_WAITING: Final = 10.0  # seconds that a call waits for its turn
FRESH_SECONDS: Final = 3_600.0
RETRY_SECONDS: Final = 60.0  # after a robots.txt that could not be read
ROBOTS_SECONDS: Final = 8.0
MOST_HOSTS: Final = 1_000

Sleep: TypeAlias = Callable[[float], Awaitable[None]]
Clock: TypeAlias = Callable[[], float]


@dataclass(slots=True)
class _Host:
    """What is known of a host. Without `robots` nobody may come before `robots_until`."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    robots: Robots | None = None
    robots_until: float = float("-inf")
    free_at: float = float("-inf")


class Manners:
    """Turns at hosts. Without `obeys`, robots.txt is neither asked for nor obeyed."""

    def __init__(
        self,
        http: GuardedHttp,
        *,
        obeys: bool = True,
        sleep: Sleep = asyncio.sleep,
        clock: Clock = monotonic,
    ) -> None:
        self._http = http
        self._obeys = obeys
        self._sleep = sleep
        self._clock = clock
        self._hosts: OrderedDict[str, _Host] = OrderedDict()

    @asynccontextmanager
    async def turn(self, address: WebAddress) -> AsyncGenerator[None]:
        """Our turn to ask this address.

        AccessDenied when its host asks not to; ToolFailed when it cannot be now.
        """
        host = self._host(address.origin)
        async with host.lock:
            rules = await self._rules(host, address) if self._obeys else Robots()
            if not rules.allow(address.target):
                raise AccessDenied(
                    f"robots.txt of {address.host} asks programs not to fetch this page.",
                    hint="The user may open it themselves.",
                )
            await self._wait(host, address)
            try:
                yield
            finally:
                host.free_at = self._clock() + max(rules.delay, INTERVAL)

    def _host(self, origin: str) -> _Host:
        host = self._hosts.setdefault(origin, _Host())
        self._hosts.move_to_end(origin)
        if len(self._hosts) > MOST_HOSTS:
            self._hosts.popitem(last=False)
        return host

    async def _wait(self, host: _Host, address: WebAddress) -> None:
        left = host.free_at - self._clock()
        if left > MOST_WAITING:
            raise ToolFailed(
                f"{address.host} wants longer pauses between two requests.",
                hint=f"Ask again in {left:.0f} seconds, or read another page.",
            )
        if left > 0:
            await self._sleep(left)

    async def _rules(self, host: _Host, address: WebAddress) -> Robots:
        """Who waits for the host's lock finds them read by who holds it."""
        if self._clock() >= host.robots_until:
            host.robots = await self._read(address.at("/robots.txt"))
            kept = FRESH_SECONDS if host.robots else RETRY_SECONDS
            host.robots_until = self._clock() + kept
        if host.robots is None:
            raise ToolFailed(
                f"robots.txt of {address.host} cannot be read now, so nothing is fetched there.",
                hint="Try later, or read another page.",
            )
        return host.robots

    async def _read(self, address: WebAddress) -> Robots | None:
        """The rules of a host; None when it does not say for now.

        A host that has no such file, or hides it, has no rules.
        """
        limits = Limits(seconds=ROBOTS_SECONDS, bytes=robots.MOST_BYTES)
        try:
            answer = await self._http.get(address.url, limits=limits)
        except (AccessDenied, ToolRetry):
            return Robots()  # it redirects to where nothing can be read
        except ToolFailed:
            return None
        if answer.status == 429 or answer.status >= 500:
            return None
        if answer.status != 200:
            return Robots()
        return await asyncio.to_thread(read_robots, answer.body.decode("utf-8", "replace"))
