"""The HTTP connection pool that the whole process shares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from types import SimpleNamespace, TracebackType
from typing import Self

import aiohttp

MAX_CONNECTIONS = 512  # across all hosts; a stream occupies one until it ends
KEEPALIVE_SECONDS = 30.0
DNS_CACHE_SECONDS = 60
LARGE_BODY_BYTES = 1024 * 1024  # larger bodies are sent in chunks


@dataclass(slots=True)
class _RequestTrace:
    """How one request was sent."""

    is_connection_reused: bool = False  # sent on a kept-alive connection


class HttpPool:
    """Owns the session that all model calls share, so that they reuse warm connections.

    The session opens with the first call, in the event loop of that call, and closes when the
    context manager exits. It ignores the environment (proxies, .netrc) and stores no cookies.
    """

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    @property
    def session(self) -> aiohttp.ClientSession:
        """The shared session, opened on first use."""
        if self._closed:
            raise RuntimeError("the HTTP pool is closed")
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit=MAX_CONNECTIONS,
                    keepalive_timeout=KEEPALIVE_SECONDS,
                    ttl_dns_cache=DNS_CACHE_SECONDS,
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None),
                trace_configs=[_build_trace_config()],
            )
        return self._session

    async def post(
        self, url: str, body: bytes, *, headers: Mapping[str, str], connect_seconds: float
    ) -> aiohttp.ClientResponse:
        """Send a body and wait for the response headers. Redirects are not followed.

        A server may close a kept-alive connection just as it is reused. That does not mean the
        server is down, so the request is retried on another connection.
        """
        while True:
            trace = _RequestTrace()
            try:
                return await self.session.post(
                    url,
                    data=BytesIO(body) if len(body) > LARGE_BODY_BYTES else body,
                    headers=headers,
                    allow_redirects=False,  # a redirect would receive the API key
                    timeout=aiohttp.ClientTimeout(sock_connect=connect_seconds),
                    trace_request_ctx=trace,
                )
            except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
                if not trace.is_connection_reused:
                    raise

    async def close(self) -> None:
        """Close every connection, including those of running streams."""
        self._closed = True
        if self._session is not None:
            await self._session.close()
            self._session = None


def _build_trace_config() -> aiohttp.TraceConfig:
    async def mark_reused(
        session: aiohttp.ClientSession,
        context: SimpleNamespace,
        params: aiohttp.TraceConnectionReuseconnParams,
    ) -> None:
        if isinstance(context.trace_request_ctx, _RequestTrace):
            context.trace_request_ctx.is_connection_reused = True

    trace_config = aiohttp.TraceConfig()
    trace_config.on_connection_reuseconn.append(mark_reused)
    return trace_config
