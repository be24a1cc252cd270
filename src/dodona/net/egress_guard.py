"""The one gate for every request that a model can cause.

    what it was told    is refused unless it is a web address in the strict reading of `urls`
    where it leads      a name is resolved once; all its addresses must be public, and to one of
                        these the connection goes: nothing is looked up a second time
    the socket          opens to public addresses only, and none of this machine, whatever came
                        before
    redirects           are followed by hand, and each is checked as the first was
    what comes back     is cut at a number of bytes, counted after decompression, and at a time

A host that the operator named passes through a door of its own, which leads to nothing else.
No cookie, credential or proxy of this machine is ever used, and certificates are verified.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self, TypeAlias

import aiohttp
from yarl import URL

from dodona.core.errors import AccessDenied, DodonaError, ToolFailed
from dodona.net.addresses import is_public
from dodona.net.allowlist import Exemptions
from dodona.net.dns import (
    CheckedResolver,
    Resolve,
    private,
    public_socket,
    system_resolve,
)
from dodona.net.urls import WebAddress, read_url

# Those that browsers refuse, and those of databases and clusters that take a request for orders.
_WRITTEN: Final = """
1 7 9 11 13 15 17 19 20 21 22 23 25 37 42 43 53 69 77 79 87 95 101 102 103 104 109 110 111
113 115 117 119 123 135 137 139 143 161 179 389 427 445 465 512 513 514 515 526 530 531 532
540 548 554 556 563 587 601 636 989 990 993 995 1719 1720 1723 2049 2375 2376 2379 3306
3389 3659 4045 4190 5060 5061 5432 6000 6379 6566 6665 6666 6667 6668 6669 6679 6697 10080
10250 11211 27017
"""

CLOSED_PORTS: Final = frozenset(map(int, _WRITTEN.split()))


CONNECTIONS: Final = 32
IDLE_SECONDS: Final = 15.0
LONGEST_HEADER: Final = 8_192  # bytes
MOST_HEADERS: Final = 100
REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})

_log = logging.getLogger(__name__)

Around: TypeAlias = Callable[[WebAddress], AbstractAsyncContextManager[None]]


@dataclass(frozen=True, slots=True)
class Limits:
    """The most that a request may take: until the last byte, all redirects together."""

    seconds: float = 20.0
    bytes: int = 2 * 1024 * 1024
    redirects: int = 5


@dataclass(frozen=True, slots=True)
class Fetched:
    """What an address answered. `body` is its beginning when it `is_cut`."""

    address: WebAddress
    status: int
    content_type: str
    body: bytes
    is_cut: bool = False
    retry_after: str = ""


class GuardedHttp:
    """HTTP for what models ask for. `exempt` are hosts, or `host:port`, of the operator's choice.

    Sessions open with the first request and close with the block.
    """

    def __init__(
        self, user_agent: str, *, exempt: Iterable[str] = (), resolve: Resolve | None = None
    ) -> None:
        self._user_agent = user_agent
        self._exempt = Exemptions(exempt)
        self._resolve = resolve or system_resolve
        self._sessions: dict[bool, aiohttp.ClientSession] = {}  # by whether it is for exempt hosts
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._closed = True
        sessions = [self._sessions.popitem()[1] for _ in range(len(self._sessions))]
        for session in sessions:
            await session.close()

    async def get(
        self,
        url: str,
        *,
        limits: Limits | None = None,
        headers: Mapping[str, str] | None = None,
        around: Around | None = None,
    ) -> Fetched:
        """What an address answers, after its redirects.

        AccessDenied when it, or what it redirects to, may not be reached; ToolFailed when it
        cannot be. `headers` go to the address itself and to no redirect. `around` is entered
        around each request with its address, and may refuse it.
        """
        address = read_url(url)
        limits = limits or Limits()
        try:
            async with asyncio.timeout(limits.seconds):
                return await self._follow(address, limits, headers=headers, around=around)
        except TimeoutError:
            raise ToolFailed(
                f"{address.host} took longer than {limits.seconds:g} seconds."
            ) from None

    def check(self, address: WebAddress) -> None:
        """Refuse what can be refused before anything is sent or looked up."""
        if self._exempt.names_port(address):
            return
        if address.port in CLOSED_PORTS:
            raise AccessDenied(f"port {address.port} is not for web pages.")
        if address.ip and not is_public(address.ip) and not self._exempt.cover(address):
            raise private(address.host, str(address.ip))

    async def _follow(
        self,
        address: WebAddress,
        limits: Limits,
        *,
        headers: Mapping[str, str] | None,
        around: Around | None,
    ) -> Fetched:
        left = limits.redirects
        while True:
            self.check(address)
            async with around(address) if around else nullcontext():
                answer = await self._once(address, limits, headers or {})
            if isinstance(answer, Fetched):
                return answer
            if not left:
                raise ToolFailed(f"{address.host} redirects {_too_often(limits.redirects)}.")
            address, headers, left = redirected(address, answer), None, left - 1

    async def _once(
        self, address: WebAddress, limits: Limits, headers: Mapping[str, str]
    ) -> Fetched | str:
        """The answer of one address, or where it redirects to."""
        session = self._session(is_exempt=self._exempt.cover(address))
        try:
            async with session.get(
                _as_read(address), headers=headers, allow_redirects=False
            ) as response:
                target = response.headers.get("Location")
                if response.status in REDIRECTS and target is not None:
                    response.close()  # what it says about it is nobody's concern
                    return target
                body, is_cut = await _body(response, limits.bytes)
                return Fetched(
                    address,
                    response.status,
                    response.headers.get("Content-Type", ""),
                    body,
                    is_cut,
                    response.headers.get("Retry-After", ""),
                )
        except (aiohttp.ClientError, OSError) as error:
            raise _failed(address, error) from error

    def _session(self, *, is_exempt: bool) -> aiohttp.ClientSession:
        if self._closed:
            raise RuntimeError("the guarded HTTP is closed")
        if is_exempt not in self._sessions:
            connector = aiohttp.TCPConnector(
                limit=CONNECTIONS,
                keepalive_timeout=IDLE_SECONDS,
                use_dns_cache=False,
                resolver=CheckedResolver(self._resolve, is_exempt=is_exempt),
                socket_factory=None if is_exempt else public_socket,
            )
            self._sessions[is_exempt] = aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None),  # `get` sets one for all of it
                headers={"User-Agent": self._user_agent, "Accept-Encoding": "gzip, deflate"},
                max_line_size=LONGEST_HEADER,
                max_field_size=LONGEST_HEADER,
                max_headers=MOST_HEADERS,
            )
        return self._sessions[is_exempt]


def _as_read(address: WebAddress) -> URL:
    """The address as the client reads it, which must be as we do."""
    url = URL(address.url, encoded=True)
    seen = (url.scheme, url.raw_host, url.port, url.raw_path_qs, url.raw_user)
    if seen != (address.scheme, address.host, address.port, address.target, None):
        raise AccessDenied("the address can be read in two ways.")
    return url


async def _body(response: aiohttp.ClientResponse, most: int) -> tuple[bytes, bool]:
    """The decoded body up to so many bytes, and whether there is more."""
    kept = bytearray()
    async for chunk in response.content.iter_any():
        kept += chunk
        if len(kept) > most:
            response.close()
            return bytes(kept[:most]), True
    return bytes(kept), False


def redirected(address: WebAddress, target: str) -> WebAddress:
    """What an answer redirects to. Who asked with encryption goes on with it."""
    following = address.join(target)
    if (address.scheme, following.scheme) == ("https", "http"):
        raise AccessDenied(f"{address.host} redirects to an address without encryption.")
    return following


def _too_often(most: int) -> str:
    return f"more than {most} times" if most else "elsewhere, which is not followed"


def _failed(address: WebAddress, error: Exception) -> DodonaError:
    """What the model may know; what happened exactly is in the log."""
    _log.info("%s: %s: %s", address.origin, type(error).__name__, error)
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return ToolFailed(f"there is no host {address.host}.", hint="Check the address.")
    if isinstance(error, aiohttp.ClientSSLError | aiohttp.ClientConnectorCertificateError):
        return ToolFailed(f"the certificate of {address.host} cannot be trusted.")
    if isinstance(error, aiohttp.ClientPayloadError | aiohttp.ClientResponseError):
        return ToolFailed(f"{address.host} sent an answer that cannot be read.")
    return ToolFailed(f"{address.host} cannot be reached.")
