"""Limits on open connections, and a timeout for request headers.

They work in the server's protocol classes: a connection that sends no request never reaches the
ASGI application.
"""

from __future__ import annotations

import asyncio
import resource
from collections import Counter
from typing import Any, Final, cast

from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from dodona.gateway.http.responses import encode_json
from dodona.gateway.security.client_address import client_key, is_loopback
from dodona.gateway.settings import GatewaySettings

_RESERVED_FILES: Final = 128  # file descriptors for the store, indexes and models

_OVERLOADED_BODY: Final = encode_json(
    {
        "error": {
            "code": "overloaded",
            "message": "too many open connections.",
            "hint": "Close unused connections, or retry later.",
        }
    }
)
OVERLOADED_RESPONSE: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 5\r\n"
    b"connection: close\r\ncontent-length: %d\r\n\r\n%b" % (len(_OVERLOADED_BODY), _OVERLOADED_BODY)
)


class ConnectionLimiter:
    """Counts open connections, in total and per client address."""

    def __init__(self, settings: GatewaySettings) -> None:
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if files == resource.RLIM_INFINITY:
            files = settings.limits.connections + _RESERVED_FILES
        self._max_total = min(settings.limits.connections, max(files // 2, files - _RESERVED_FILES))
        self._max_per_client = settings.limits.address_connections
        self._proxies = settings.proxies
        self.head_timeout = settings.head_timeout
        self._clients: dict[asyncio.BaseTransport, str] = {}
        self._counts: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._clients)

    @property
    def is_full(self) -> bool:
        """Whether another connection exceeds the total limit."""
        return len(self._clients) >= self._max_total

    def try_add(self, transport: asyncio.BaseTransport) -> bool:
        """Count a connection; False if it exceeds a limit. Adding one again has no effect."""
        if transport in self._clients:
            return True
        address = str((transport.get_extra_info("peername") or ("",))[0])
        client = client_key(address)
        is_shared = is_loopback(address) or address in self._proxies
        if self.is_full or (not is_shared and self._counts[client] >= self._max_per_client):
            return False
        self._clients[transport] = client
        self._counts[client] += 1
        return True

    def remove(self, transport: asyncio.BaseTransport) -> None:
        """Stop counting a connection."""
        client = self._clients.pop(transport, None)
        if client is not None:
            self._counts[client] -= 1
            if not self._counts[client]:
                del self._counts[client]

    def install(self, config: Config) -> None:
        """Make a server count its connections here, including WebSockets."""
        config.load()
        config.http_protocol_class = _counting_protocol(
            _head_timeout_protocol(self.head_timeout), self
        )
        if config.ws_protocol_class is not None:
            config.ws_protocol_class = _counting_protocol(config.ws_protocol_class, self)


def _counting_protocol(
    protocol: type[asyncio.Protocol], limiter: ConnectionLimiter
) -> type[asyncio.Protocol]:
    """Return the protocol class, extended to count its connections and refuse excess ones."""

    class CountingProtocol(protocol):
        _counted_transport: asyncio.BaseTransport | None = None

        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            if limiter.try_add(transport):
                self._counted_transport = transport
                super().connection_made(transport)
            else:
                http_transport = cast(asyncio.Transport, transport)
                http_transport.write(OVERLOADED_RESPONSE)
                http_transport.close()

        def connection_lost(self, exc: Exception | None) -> None:
            if self._counted_transport is not None:
                limiter.remove(self._counted_transport)
                super().connection_lost(exc)

    return CountingProtocol


class _HttpProtocol(H11Protocol):
    """Treats some upgrade requests as plain ones, and answers a malformed body once.

    HTTP/1.0 has no upgrades, and the server would report it as HTTP/1.1, as if no proxy had
    forwarded it. A body would be read as WebSocket frames.
    """

    def _should_upgrade(self) -> bool:
        has_body = any(
            name == b"transfer-encoding" or (name == b"content-length" and value != b"0")
            for name, value in self.headers
        )
        is_allowed = self.scope["http_version"] != "1.0" and not has_body
        return is_allowed and super()._should_upgrade()

    def send_400_response(self, msg: str) -> None:
        cycle = cast("RequestResponseCycle | None", self.cycle)
        if cycle is not None and not cycle.response_complete:
            # The body is malformed. The application must not answer too: that is an error.
            cycle.disconnected = True
            cycle.message_event.set()
            if cycle.response_started:
                self.transport.close()
                return
        super().send_400_response(msg)


def _head_timeout_protocol(seconds: float) -> type[asyncio.Protocol]:
    """Return an HTTP protocol class that closes connections whose headers do not arrive in time."""

    class HeadTimeoutProtocol(_HttpProtocol):
        _waiting_since: float | None = None  # when the wait for a request's headers began
        _timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._waiting_since = self.loop.time()
            self._timer = self.loop.call_later(seconds, self._check_timeout)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if not self._awaits_head():
                self._waiting_since = None
            elif self._waiting_since is None:
                self._waiting_since = self.loop.time()

        def connection_lost(self, exc: Exception | None) -> None:
            self._cancel_timer()
            super().connection_lost(exc)

        def handle_websocket_upgrade(self, event: Any) -> None:
            self._cancel_timer()
            super().handle_websocket_upgrade(event)

        def _awaits_head(self) -> bool:
            cycle = cast("RequestResponseCycle | None", self.cycle)
            is_idle = self.timeout_keep_alive_task is not None
            return not is_idle and (cycle is None or cycle.response_complete)

        def _check_timeout(self) -> None:
            now = self.loop.time()
            since = self._waiting_since if self._awaits_head() else None
            if since is not None and now - since >= seconds:
                self.transport.close()
            else:
                self._timer = self.loop.call_later(seconds, self._check_timeout)

        def _cancel_timer(self) -> None:
            if self._timer is not None:
                self._timer.cancel()

    return HeadTimeoutProtocol
