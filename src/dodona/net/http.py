"""The one pool of HTTP connections of a process."""

from __future__ import annotations

from types import TracebackType
from typing import Self

import aiohttp

CONNECTIONS = 512  # all hosts together; a stream holds one for as long as it runs
IDLE_SECONDS = 30.0
DNS_SECONDS = 60


class Http:
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
                    limit=CONNECTIONS, keepalive_timeout=IDLE_SECONDS, ttl_dns_cache=DNS_SECONDS
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None),
            )
        return self._session

    async def close(self) -> None:
        """Close every connection; streams that still run are cut."""
        self._closed = True
        if self._session is not None:
            await self._session.close()
            self._session = None
