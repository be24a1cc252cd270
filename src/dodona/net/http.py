"""The one pool of HTTP connections of a process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from types import SimpleNamespace, TracebackType
from typing import Self

import aiohttp

MAX_CONNECTIONS = 512  # all hosts together; a stream holds one for as long as it runs
KEEPALIVE_SECONDS = 30.0
DNS_CACHE_SECONDS = 60
LARGE_BODY_BYTES = 1024 * 1024  # more than this is not written in one piece


@dataclass(slots=True)
class _RequestTrace:
    """How a request went out."""

    is_connection_reused: bool = False  # on a connection that had been kept


class HttpPool:
    """Owns the session that all model calls share, so that they find warm connections.

    The session opens with the first call, in the loop that makes it, and closes with the block.
    Nothing is taken from the environment (proxies, .netrc), and no cookie is kept.
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
        """Send a body and wait for the head of the answer. Redirects are not followed.

        A server may close a connection that was kept at the very moment when it is used again.
        That says nothing of the server, so the request is sent once more, on another one.
        """
        while True:
            trip = _RequestTrace()
            try:
                return await self.session.post(
                    url,
                    data=BytesIO(body) if len(body) > LARGE_BODY_BYTES else body,
                    headers=headers,
                    allow_redirects=False,  # it would carry the key to wherever it points
                    timeout=aiohttp.ClientTimeout(sock_connect=connect_seconds),
                    trace_request_ctx=trip,
                )
            except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
                if not trip.is_connection_reused:
                    raise

    async def close(self) -> None:
        """Close every connection; streams that still run are cut."""
        self._closed = True
        if self._session is not None:
            await self._session.close()
            self._session = None


def _build_trace_config() -> aiohttp.TraceConfig:
    async def note(
        session: aiohttp.ClientSession,
        context: SimpleNamespace,
        params: aiohttp.TraceConnectionReuseconnParams,
    ) -> None:
        if isinstance(context.trace_request_ctx, _RequestTrace):
            context.trace_request_ctx.is_connection_reused = True

    tracing = aiohttp.TraceConfig()
    tracing.on_connection_reuseconn.append(note)
    return tracing
