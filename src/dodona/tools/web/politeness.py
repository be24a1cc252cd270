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
from dodona.net.egress_guard import FetchLimits, GuardedHttp
from dodona.net.urls import WebAddress
from dodona.tools.web import robots
from dodona.tools.web.robots import RobotsTxt, parse_robots

MIN_INTERVAL_SECONDS: Final = 1.0  # seconds between two requests to a host that names no time
MAX_WAIT_SECONDS: Final = 10.0  # seconds that a call waits for its turn
ROBOTS_CACHE_SECONDS: Final = 3_600.0
ROBOTS_RETRY_SECONDS: Final = 60.0  # after a robots.txt that could not be read
ROBOTS_TIMEOUT_SECONDS: Final = 8.0
MAX_HOSTS: Final = 1_000

Sleep: TypeAlias = Callable[[float], Awaitable[None]]
Clock: TypeAlias = Callable[[], float]


@dataclass(slots=True)
class _HostState:
    """What is known of a host. Without `robots` nobody may come before `robots_expire_at`."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    robots: RobotsTxt | None = None
    robots_expire_at: float = float("-inf")
    next_request_at: float = float("-inf")


class PolitenessPolicy:
    """Turns at hosts. Without `obeys`, robots.txt is neither asked for nor obeyed."""

    def __init__(
        self,
        http: GuardedHttp,
        *,
        obey_robots: bool = True,
        sleep: Sleep = asyncio.sleep,
        clock: Clock = monotonic,
    ) -> None:
        self._http = http
        self._obey_robots = obey_robots
        self._sleep = sleep
        self._clock = clock
        self._hosts: OrderedDict[str, _HostState] = OrderedDict()

    @asynccontextmanager
    async def request_slot(self, address: WebAddress) -> AsyncGenerator[None]:
        """Our turn to ask this address.

        AccessDenied when its host asks not to; ToolFailed when it cannot be now.
        """
        host = self._host_state(address.origin)
        async with host.lock:
            rules = await self._robots_rules(host, address) if self._obey_robots else RobotsTxt()
            if not rules.allows(address.target):
                raise AccessDenied(
                    f"robots.txt of {address.host} asks programs not to fetch this page.",
                    hint="The user may open it themselves.",
                )
            await self._wait_for_slot(host, address)
            try:
                yield
            finally:
                host.next_request_at = self._clock() + max(rules.delay, MIN_INTERVAL_SECONDS)

    def _host_state(self, origin: str) -> _HostState:
        host = self._hosts.setdefault(origin, _HostState())
        self._hosts.move_to_end(origin)
        if len(self._hosts) > MAX_HOSTS:
            self._hosts.popitem(last=False)
        return host

    async def _wait_for_slot(self, host: _HostState, address: WebAddress) -> None:
        left = host.next_request_at - self._clock()
        if left > MAX_WAIT_SECONDS:
            raise ToolFailed(
                f"{address.host} wants longer pauses between two requests.",
                hint=f"Ask again in {left:.0f} seconds, or read another page.",
            )
        if left > 0:
            await self._sleep(left)

    async def _robots_rules(self, host: _HostState, address: WebAddress) -> RobotsTxt:
        """Who waits for the host's lock finds them read by who holds it."""
        if self._clock() >= host.robots_expire_at:
            host.robots = await self._fetch_robots(address.with_target("/robots.txt"))
            kept = ROBOTS_CACHE_SECONDS if host.robots else ROBOTS_RETRY_SECONDS
            host.robots_expire_at = self._clock() + kept
        if host.robots is None:
            raise ToolFailed(
                f"robots.txt of {address.host} cannot be read now, so nothing is fetched there.",
                hint="Try later, or read another page.",
            )
        return host.robots

    async def _fetch_robots(self, address: WebAddress) -> RobotsTxt | None:
        """The rules of a host; None when it does not say for now.

        A host that has no such file, or hides it, has no rules.
        """
        limits = FetchLimits(timeout_seconds=ROBOTS_TIMEOUT_SECONDS, max_bytes=robots.MAX_BYTES)
        try:
            answer = await self._http.get(address.url, limits=limits)
        except (AccessDenied, ToolRetry):
            return RobotsTxt()  # it redirects to where nothing can be read
        except ToolFailed:
            return None
        if answer.status == 429 or answer.status >= 500:
            return None
        if answer.status != 200:
            return RobotsTxt()
        return await asyncio.to_thread(parse_robots, answer.body.decode("utf-8", "replace"))
