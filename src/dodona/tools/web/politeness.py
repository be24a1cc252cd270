"""Polite requests: obey a host's robots.txt and send one request at a time, with pauses.

robots.txt is read by RFC 9309: the group that names us applies, else the group for all. The longest
matching rule decides; in a tie `Allow` wins.
"""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from time import monotonic
from typing import Final, TypeAlias

from dodona.concurrency.timeouts import paused_timeouts
from dodona.core.errors import AccessDenied, ToolFailed, ToolRetry
from dodona.net.egress_guard import FetchLimits, GuardedHttp
from dodona.net.urls import WebAddress, normalize_escapes

MIN_INTERVAL_SECONDS: Final = 1.0  # for a host that sets no crawl delay
MAX_WAIT_SECONDS: Final = 10.0  # longest pause between two requests that a call waits for
MAX_QUEUE_SECONDS: Final = 60.0  # longest time that a call waits for the calls before it
ROBOTS_CACHE_SECONDS: Final = 3_600.0
ROBOTS_RETRY_SECONDS: Final = 60.0  # after robots.txt could not be read
ROBOTS_TIMEOUT_SECONDS: Final = 8.0
MAX_HOSTS: Final = 1_000

Sleep: TypeAlias = Callable[[float], Awaitable[None]]
Clock: TypeAlias = Callable[[], float]


@dataclass(slots=True)
class _HostState:
    """State of a host. While `robots` is None, requests are refused until `robots_expire_at`."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    robots: RobotsTxt | None = None
    robots_expire_at: float = float("-inf")
    next_request_at: float = float("-inf")


class PolitenessPolicy:
    """Hands out request slots per host. `obey_robots=False` ignores robots.txt."""

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
        """Wait for a request slot for this address. The wait does not count against timeouts.

        Raises AccessDenied if robots.txt forbids it, ToolFailed if the wait is too long.
        """
        host = self._host_state(address.origin)
        async with _turn(host.lock, address):
            rules = await self._robots_rules(host, address) if self._obey_robots else RobotsTxt()
            if not rules.allows(address.target):
                raise AccessDenied(
                    f"robots.txt of {address.host} does not allow fetching this page.",
                    hint="The user can open it in a browser.",
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
        remaining = host.next_request_at - self._clock()
        if remaining > MAX_WAIT_SECONDS:
            raise ToolFailed(
                f"{address.host} requires longer pauses between requests.",
                hint=f"Retry in {remaining:.0f} seconds, or read another page.",
            )
        if remaining > 0:
            with paused_timeouts():
                await self._sleep(remaining)

    async def _robots_rules(self, host: _HostState, address: WebAddress) -> RobotsTxt:
        """Return the robots.txt rules of a host. The caller holds the host's lock."""
        if self._clock() >= host.robots_expire_at:
            host.robots = await self._fetch_robots(address.with_target("/robots.txt"))
            ttl = ROBOTS_CACHE_SECONDS if host.robots else ROBOTS_RETRY_SECONDS
            host.robots_expire_at = self._clock() + ttl
        if host.robots is None:
            raise ToolFailed(
                f"robots.txt of {address.host} is unavailable, so its pages cannot be fetched now.",
                hint="Try again later, or read another page.",
            )
        return host.robots

    async def _fetch_robots(self, address: WebAddress) -> RobotsTxt | None:
        """Fetch the rules of a host; None if they are unavailable for now.

        A host whose robots.txt is missing or forbidden has no rules.
        """
        limits = FetchLimits(timeout_seconds=ROBOTS_TIMEOUT_SECONDS, max_bytes=MAX_BYTES)
        try:
            response = await self._http.get(address.url, limits=limits)
        except (AccessDenied, ToolRetry):
            return RobotsTxt()  # it redirects to an address that cannot be fetched
        except ToolFailed:
            return None
        if response.status == 429 or response.status >= 500:
            return None
        if response.status != 200:
            return RobotsTxt()
        return await asyncio.to_thread(parse_robots, response.body.decode("utf-8", "replace"))


@asynccontextmanager
async def _turn(lock: asyncio.Lock, address: WebAddress) -> AsyncGenerator[None]:
    """Hold the lock of a host, after the calls that wait already."""
    try:
        with paused_timeouts():
            async with asyncio.timeout(MAX_QUEUE_SECONDS):
                await lock.acquire()
    except TimeoutError:
        raise ToolFailed(
            f"{address.host} is busy with earlier requests.",
            hint="Try again later, or read another page.",
        ) from None
    try:
        yield
    finally:
        lock.release()


# -- robots.txt ------------------------------------------------------------------------------------

PRODUCT_TOKEN: Final = "dodona"  # our user agent name in robots.txt
MAX_BYTES: Final = 500 * 1024  # the part of the file that RFC 9309 requires us to read
MAX_RULES: Final = 5_000
MAX_RULE_CHARS: Final = 2_000

_PRODUCT = re.compile(r"\*|[A-Za-z_-]+")


@dataclass(frozen=True, slots=True)
class RobotsRule:
    """Allows or disallows a path; `*` matches any characters, a final `$` the end."""

    allows: bool
    pattern: str

    def matches(self, target: str) -> bool:
        """Whether the rule matches. Each piece is searched once, so no pattern is slow."""
        is_whole = self.pattern.endswith("$")
        first, *pieces = self.pattern.removesuffix("$").split("*")
        if not target.startswith(first):
            return False
        at = len(first)
        last = pieces.pop() if pieces and is_whole else None
        for piece in pieces:
            start = target.find(piece, at)
            if start < 0:
                return False
            at = start + len(piece)
        if last is not None:
            return target.endswith(last) and len(target) - len(last) >= at
        return not is_whole or at == len(target)


@dataclass(frozen=True, slots=True)
class RobotsTxt:
    """The rules of a host. `delay` is the minimum number of seconds between requests."""

    rules: tuple[RobotsRule, ...] = ()
    delay: float = 0.0

    def allows(self, target: str) -> bool:
        """Whether this path with its query, in normal form, may be fetched."""
        matching = (rule for rule in self.rules if rule.matches(target))
        best = max(matching, key=lambda rule: (len(rule.pattern), rule.allows), default=None)
        return best is None or best.allows


def parse_robots(text: str) -> RobotsTxt:
    """Parse the parts of robots.txt that apply to us; invalid lines are ignored."""
    ours: list[tuple[str, str]] = []
    everyone: list[tuple[str, str]] = []
    agents: set[str] = set()
    in_agent_lines = False
    for key, value in _parse_lines(text):
        if key == "user-agent":
            product = _PRODUCT.match(value)
            agents = agents if in_agent_lines else set()
            agents.add(product[0].lower() if product else "")
            in_agent_lines = True
            continue
        in_agent_lines = False
        if PRODUCT_TOKEN in agents:
            ours.append((key, value))
        if "*" in agents:
            everyone.append((key, value))
    group = ours if _has_own_group(text) else everyone
    rules = [_parse_rule(key, value) for key, value in group if key in {"allow", "disallow"}]
    delays = (_parse_delay(value) for key, value in group if key == "crawl-delay")
    return RobotsTxt(tuple(filter(None, rules))[:MAX_RULES], max(delays, default=0.0))


def _has_own_group(text: str) -> bool:
    """Whether a group names us. Such a group without rules allows everything."""
    agents = (value for key, value in _parse_lines(text) if key == "user-agent")
    return any(
        (product := _PRODUCT.match(v)) and product[0].lower() == PRODUCT_TOKEN for v in agents
    )


def _parse_lines(text: str) -> Iterator[tuple[str, str]]:
    for line in text.removeprefix("\ufeff").splitlines():
        key, colon, value = line.partition("#")[0].partition(":")
        if colon and key.strip().lower() in {"user-agent", "allow", "disallow", "crawl-delay"}:
            yield key.strip().lower(), value.strip()[:MAX_RULE_CHARS]


def _parse_rule(key: str, value: str) -> RobotsRule | None:
    """Parse a rule; None for an empty path, which matches nothing."""
    if not value:
        return None
    pattern = normalize_escapes(value.encode("utf-8", "replace").decode())
    return RobotsRule(key == "allow", pattern if pattern[0] in "/*" else f"/{pattern}")


def _parse_delay(text: str) -> float:
    return float(text) if re.fullmatch(r"\d{1,6}(\.\d{0,3})?", text, re.ASCII) else 0.0
