"""The HTTP client for every request that a model can trigger.

    URL          must be an http(s) URL that the strict parser in `urls` accepts
    DNS          a name is resolved once; all its addresses must be public, and the connection
                 goes to one of these, without a second lookup
    socket       opens only to public addresses that this machine does not own, even if an
                 earlier check was bypassed
    redirects    are followed here rather than by aiohttp, and each passes the same checks
    response     is limited in time and in bytes, counted after decompression

Hosts that the operator exempted use a separate session that serves no other hosts. Cookies,
credentials and proxies of this machine are never used, and certificates are always verified.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self, TypeAlias

import aiohttp
from yarl import URL

from dodona.concurrency.timeouts import pausable_timeout
from dodona.core.errors import AccessDenied, ConfigError, DodonaError, ToolFailed, ToolRetry
from dodona.net.addresses import is_public, parse_ip
from dodona.net.dns import (
    CheckedResolver,
    Resolve,
    create_public_socket,
    private_host_error,
    system_resolve,
)
from dodona.net.urls import WebAddress, parse_url

# Ports that browsers refuse, plus ports of databases and clusters that would act on a request.
_PORT_LIST: Final = """
1 7 9 11 13 15 17 19 20 21 22 23 25 37 42 43 53 69 77 79 87 95 101 102 103 104 109 110 111
113 115 117 119 123 135 137 139 143 161 179 389 427 445 465 512 513 514 515 526 530 531 532
540 548 554 556 563 587 601 636 989 990 993 995 1719 1720 1723 2049 2375 2376 2379 3306
3389 3659 4045 4190 5060 5061 5432 6000 6379 6566 6665 6666 6667 6668 6669 6679 6697 10080
10250 11211 27017
"""

BLOCKED_PORTS: Final = frozenset(map(int, _PORT_LIST.split()))


MAX_CONNECTIONS: Final = 32
KEEPALIVE_SECONDS: Final = 15.0
MAX_HEADER_BYTES: Final = 8_192
MAX_HEADERS: Final = 100
REDIRECT_STATUSES: Final = frozenset({301, 302, 303, 307, 308})

_HOST_PORT: Final = re.compile(r"[^\s/?#@\\]*[^\s/?#@\\:]")

_log = logging.getLogger(__name__)

RequestContextFactory: TypeAlias = Callable[[WebAddress], AbstractAsyncContextManager[None]]


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """Limits of one fetch. The timeout covers all redirects and the last byte of the body.

    It stops during `paused_timeouts`, where a fetch waits for its turn.
    """

    timeout_seconds: float = 20.0
    max_bytes: int = 2 * 1024 * 1024
    max_redirects: int = 5


@dataclass(frozen=True, slots=True)
class FetchResponse:
    """The response of a URL. If `is_cut`, `body` is only its beginning."""

    address: WebAddress
    status: int
    content_type: str
    body: bytes
    is_cut: bool = False
    retry_after: str = ""


class HostAllowlist:
    """Hosts on a private network that the operator allows: `host:port`, or `host` for all ports.

    Entries match by name: another name for the same address is not allowed.
    """

    def __init__(self, entries: Iterable[str] = ()) -> None:
        self._endpoints = frozenset(map(_parse_entry, entries))

    def lists_port(self, address: WebAddress) -> bool:
        """Return whether an entry names this host with this port."""
        return (address.host, address.port) in self._endpoints

    def allows(self, address: WebAddress) -> bool:
        """Return whether an entry names this host, with this port or without a port."""
        return self.lists_port(address) or (address.host, None) in self._endpoints


def _parse_entry(text: str) -> tuple[str, int | None]:
    """Return the normalized host, and the port if the entry has one."""
    ip = parse_ip(text)
    if ip is not None:
        return str(ip), None
    error = ConfigError(
        f"'{text[:80]}' is not a valid host.",
        hint="Write host or host:port, without http:// and without a path.",
    )
    if not _HOST_PORT.fullmatch(text):
        raise error
    try:
        address = parse_url(f"http://{text}")
    except (ToolRetry, AccessDenied):
        raise error from None
    has_port = ":" in text.rpartition("]")[2]
    return address.host, address.port if has_port else None


class GuardedHttp:
    """HTTP client for URLs that models choose.

    `exempt_hosts` are entries `host` or `host:port` that may be on a private network.
    Sessions open with the first request and close when the context manager exits.
    """

    def __init__(
        self, user_agent: str, *, exempt_hosts: Iterable[str] = (), resolve: Resolve | None = None
    ) -> None:
        self._user_agent = user_agent
        self._allowlist = HostAllowlist(exempt_hosts)
        self._resolve = resolve or system_resolve
        self._sessions: dict[bool, aiohttp.ClientSession] = {}  # key: is_exempt
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
        limits: FetchLimits | None = None,
        headers: Mapping[str, str] | None = None,
        request_context: RequestContextFactory | None = None,
    ) -> FetchResponse:
        """Fetch a URL and follow its redirects.

        Raises AccessDenied if the URL or a redirect target is not allowed, and ToolFailed if the
        request fails. `headers` are sent with the first request only, never to a redirect
        target. `request_context` wraps each request; it receives the address and may refuse it.
        """
        address = parse_url(url)
        limits = limits or FetchLimits()
        try:
            async with pausable_timeout(limits.timeout_seconds):
                return await self._follow_redirects(
                    address, limits, headers=headers, request_context=request_context
                )
        except TimeoutError:
            raise ToolFailed(
                f"{address.host} took longer than {limits.timeout_seconds:g} seconds."
            ) from None

    def check(self, address: WebAddress) -> None:
        """Refuse a blocked port or a private IP address, before any lookup or request."""
        if self._allowlist.lists_port(address):
            return
        if address.port in BLOCKED_PORTS:
            raise AccessDenied(f"port {address.port} is blocked.")
        if address.ip and not is_public(address.ip) and not self._allowlist.allows(address):
            raise private_host_error(address.host, str(address.ip))

    async def _follow_redirects(
        self,
        address: WebAddress,
        limits: FetchLimits,
        *,
        headers: Mapping[str, str] | None,
        request_context: RequestContextFactory | None,
    ) -> FetchResponse:
        redirects_left = limits.max_redirects
        while True:
            self.check(address)
            async with request_context(address) if request_context else nullcontext():
                result = await self._request_once(address, limits, headers or {})
            if isinstance(result, FetchResponse):
                return result
            if not redirects_left:
                raise ToolFailed(
                    f"{address.host} redirects {_format_redirect_limit(limits.max_redirects)}."
                )
            address, headers = resolve_redirect(address, result), None
            redirects_left -= 1

    async def _request_once(
        self, address: WebAddress, limits: FetchLimits, headers: Mapping[str, str]
    ) -> FetchResponse | str:
        """Return the response of one address, or its redirect target."""
        session = self._session(is_exempt=self._allowlist.allows(address))
        try:
            async with session.get(
                _client_url(address), headers=headers, allow_redirects=False
            ) as response:
                target = response.headers.get("Location")
                if response.status in REDIRECT_STATUSES and target is not None:
                    response.close()  # the body of a redirect is not needed
                    return target
                body, is_cut = await _read_body(response, limits.max_bytes)
                return FetchResponse(
                    address,
                    response.status,
                    response.headers.get("Content-Type", ""),
                    body,
                    is_cut,
                    response.headers.get("Retry-After", ""),
                )
        except (aiohttp.ClientError, OSError) as error:
            raise _request_error(address, error) from error

    def _session(self, *, is_exempt: bool) -> aiohttp.ClientSession:
        if self._closed:
            raise RuntimeError("the guarded HTTP client is closed")
        if is_exempt not in self._sessions:
            connector = aiohttp.TCPConnector(
                limit=MAX_CONNECTIONS,
                keepalive_timeout=KEEPALIVE_SECONDS,
                use_dns_cache=False,
                resolver=CheckedResolver(self._resolve, is_exempt=is_exempt),
                socket_factory=None if is_exempt else create_public_socket,
            )
            self._sessions[is_exempt] = aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None),  # `get` has its own timeout
                headers={"User-Agent": self._user_agent, "Accept-Encoding": "gzip, deflate"},
                max_line_size=MAX_HEADER_BYTES,
                max_field_size=MAX_HEADER_BYTES,
                max_headers=MAX_HEADERS,
            )
        return self._sessions[is_exempt]


def _client_url(address: WebAddress) -> URL:
    """Parse the URL as aiohttp does, and refuse it if the result differs from ours."""
    url = URL(address.url, encoded=True)
    client_view = (url.scheme, url.raw_host, url.port, url.raw_path_qs, url.raw_user)
    if client_view != (address.scheme, address.host, address.port, address.target, None):
        raise AccessDenied("the URL is ambiguous: parsers disagree about its host or path.")
    return url


async def _read_body(response: aiohttp.ClientResponse, max_bytes: int) -> tuple[bytes, bool]:
    """Return up to `max_bytes` of the decoded body, and whether it was longer."""
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > max_bytes:
            response.close()
            return bytes(body[:max_bytes]), True
    return bytes(body), False


def resolve_redirect(address: WebAddress, target: str) -> WebAddress:
    """Resolve the target of a redirect. A redirect from https to http is refused."""
    redirected = address.join(target)
    if (address.scheme, redirected.scheme) == ("https", "http"):
        raise AccessDenied(f"{address.host} redirects from https to http, which is not allowed.")
    return redirected


def _format_redirect_limit(max_redirects: int) -> str:
    return (
        f"more than {max_redirects} times"
        if max_redirects
        else "to another URL, and redirects are not followed"
    )


def _request_error(address: WebAddress, error: Exception) -> DodonaError:
    """Build the error that the model sees. The exact cause goes to the log."""
    _log.info("%s: %s: %s", address.origin, type(error).__name__, error)
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return ToolFailed(f"the host {address.host} does not exist.", hint="Check the URL.")
    if isinstance(error, aiohttp.ClientSSLError | aiohttp.ClientConnectorCertificateError):
        return ToolFailed(f"the TLS certificate of {address.host} is not valid.")
    if isinstance(error, aiohttp.ClientPayloadError | aiohttp.ClientResponseError):
        return ToolFailed(f"{address.host} sent an invalid response.")
    return ToolFailed(f"{address.host} cannot be reached.")
