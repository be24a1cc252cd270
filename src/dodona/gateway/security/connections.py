"""How many may be connected, and how long they may take to say what they want.

Counted where they are made: a connection that never asks for anything is seen by no application.
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

_RESERVED_FILES: Final = 128  # for the store, indexes, models
_MIN_CONNECTIONS: Final = 64

_OVERLOADED_BODY: Final = encode_json(
    {
        "error": {
            "code": "overloaded",
            "message": "too many are connected.",
            "hint": "Close connections that are not used, or come back later.",
        }
    }
)
_OVERLOADED_RESPONSE: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 5\r\n"
    b"connection: close\r\ncontent-length: %d\r\n\r\n%b" % (len(_OVERLOADED_BODY), _OVERLOADED_BODY)
)


class ConnectionLimiter:
    """All that are open, by where they come from; it knows them by their transports."""

    def __init__(self, settings: GatewaySettings) -> None:
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._max_total = min(
            settings.limits.connections, max(_MIN_CONNECTIONS, files - _RESERVED_FILES)
        )
        self._max_per_client = settings.limits.address_connections
        self._proxies = settings.proxies
        self.head_timeout = settings.head_timeout
        self._clients: dict[asyncio.BaseTransport, str] = {}
        self._counts: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._clients)

    def try_add(self, transport: asyncio.BaseTransport) -> bool:
        """Count one in; False when it is one too many. One that was counted stays counted."""
        if transport in self._clients:
            return True
        address = str((transport.get_extra_info("peername") or ("",))[0])
        place = client_key(address)
        is_one_of_many = is_loopback(address) or address in self._proxies
        if len(self._clients) >= self._max_total or (
            not is_one_of_many and self._counts[place] >= self._max_per_client
        ):
            return False
        self._clients[transport] = place
        self._counts[place] += 1
        return True

    def remove(self, transport: asyncio.BaseTransport) -> None:
        place = self._clients.pop(transport, None)
        if place is not None:
            self._counts[place] -= 1
            if not self._counts[place]:
                del self._counts[place]

    def install(self, config: Config) -> None:
        """Let a server count its connections here, also those that become WebSockets."""
        config.load()
        config.http_protocol_class = _counting_protocol(
            _head_timeout_protocol(self.head_timeout), self
        )
        if config.ws_protocol_class is not None:
            config.ws_protocol_class = _counting_protocol(config.ws_protocol_class, self)


def _counting_protocol(
    protocol: type[asyncio.Protocol], limiter: ConnectionLimiter
) -> type[asyncio.Protocol]:
    class Counted(protocol):
        _line: asyncio.BaseTransport | None = None

        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            if limiter.try_add(transport):
                self._line = transport
                super().connection_made(transport)
            else:
                line = cast(asyncio.Transport, transport)
                line.write(_OVERLOADED_RESPONSE)
                line.close()

        def connection_lost(self, exc: Exception | None) -> None:
            if self._line is not None:
                limiter.remove(self._line)
                super().connection_lost(exc)

    return Counted


def _head_timeout_protocol(seconds: float) -> type[asyncio.Protocol]:
    """HTTP that closes a connection whose request does not begin, or whose head does not end."""

    class Patient(H11Protocol):
        _since: float | None = None  # when we began to wait for the rest of a head
        _timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._since = self.loop.time()
            self._timer = self.loop.call_later(seconds, self._look)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if not self._awaits_head():
                self._since = None
            elif self._since is None:
                self._since = self.loop.time()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop()
            super().connection_lost(exc)

        def handle_websocket_upgrade(self, event: Any) -> None:
            self._stop()
            super().handle_websocket_upgrade(event)

        def _awaits_head(self) -> bool:
            cycle = cast("RequestResponseCycle | None", self.cycle)
            is_idle = self.timeout_keep_alive_task is not None
            return not is_idle and (cycle is None or cycle.response_complete)

        def _look(self) -> None:
            now = self.loop.time()
            since = self._since if self._awaits_head() else None
            if since is not None and now - since >= seconds:
                self.transport.close()
            else:
                self._timer = self.loop.call_later(seconds, self._look)

        def _stop(self) -> None:
            if self._timer is not None:
                self._timer.cancel()

    return Patient
