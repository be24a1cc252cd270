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

from dodona.gateway.http.responses import encoded
from dodona.gateway.security.client_address import client_key, is_loopback
from dodona.gateway.settings import GatewaySettings

_FILES_LEFT: Final = 128  # for the store, indexes, models
_FEWEST: Final = 64

_BODY: Final = encoded(
    {
        "error": {
            "code": "overloaded",
            "message": "too many are connected.",
            "hint": "Close connections that are not used, or come back later.",
        }
    }
)
_FULL: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 5\r\n"
    b"connection: close\r\ncontent-length: %d\r\n\r\n%b" % (len(_BODY), _BODY)
)


class Connections:
    """All that are open, by where they come from; it knows them by their transports."""

    def __init__(self, rules: GatewaySettings) -> None:
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._most = min(rules.limits.connections, max(_FEWEST, files - _FILES_LEFT))
        self._most_of_a_place = rules.limits.address_connections
        self._unlimited = rules.proxies
        self.head_seconds = rules.head_seconds
        self._places: dict[asyncio.BaseTransport, str] = {}
        self._counts: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._places)

    def came(self, transport: asyncio.BaseTransport) -> bool:
        """Count one in; False when it is one too many. One that was counted stays counted."""
        if transport in self._places:
            return True
        address = str((transport.get_extra_info("peername") or ("",))[0])
        place = client_key(address)
        is_one_of_many = is_loopback(address) or address in self._unlimited
        if len(self._places) >= self._most or (
            not is_one_of_many and self._counts[place] >= self._most_of_a_place
        ):
            return False
        self._places[transport] = place
        self._counts[place] += 1
        return True

    def left(self, transport: asyncio.BaseTransport) -> None:
        place = self._places.pop(transport, None)
        if place is not None:
            self._counts[place] -= 1
            if not self._counts[place]:
                del self._counts[place]

    def watch(self, config: Config) -> None:
        """Let a server count its connections here, also those that become WebSockets."""
        config.load()
        config.http_protocol_class = _counted(_patient(self.head_seconds), self)
        if config.ws_protocol_class is not None:
            config.ws_protocol_class = _counted(config.ws_protocol_class, self)


def _counted(protocol: type[asyncio.Protocol], connections: Connections) -> type[asyncio.Protocol]:
    class Counted(protocol):
        _line: asyncio.BaseTransport | None = None

        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            if connections.came(transport):
                self._line = transport
                super().connection_made(transport)
            else:
                line = cast(asyncio.Transport, transport)
                line.write(_FULL)
                line.close()

        def connection_lost(self, exc: Exception | None) -> None:
            if self._line is not None:
                connections.left(self._line)
                super().connection_lost(exc)

    return Counted


def _patient(seconds: float) -> type[asyncio.Protocol]:
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
