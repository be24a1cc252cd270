"""The protocol below `/ws`: how connections end that nobody reads from."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from dodona.gateway.server import open_listener
from dodona.gateway.websocket.protocol import WebSocketProtocol
from tests.gateway.plain_agency import LONG

UPGRADE = (
    b"GET /ws HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)


class Talker:
    """Sends until nobody is there; tells how that came."""

    def __init__(self) -> None:
        self.over = asyncio.Event()
        self.fault: BaseException | None = None

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        try:
            while True:
                await send({"type": "websocket.send", "text": "x" * 100_000})
        except BaseException as fault:
            self.fault = fault
            raise
        finally:
            self.over.set()


@pytest.fixture
async def talker() -> AsyncIterator[tuple[Talker, int]]:
    """One whose server pings often, and its port."""
    app = Talker()
    config: dict[str, Any] = {
        "ws": WebSocketProtocol,
        "ws_ping_interval": 0.1,
        "ws_ping_timeout": 0.1,
    }
    server = uvicorn.Server(uvicorn.Config(app, lifespan="off", log_config=None, **config))
    with open_listener("127.0.0.1", 0) as listener:
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        yield app, listener.getsockname()[1]
        server.should_exit = server.force_exit = True
        await serving


async def test_a_client_that_never_reads_is_let_go(talker: tuple[Talker, int]) -> None:
    """It answers no ping; what was written for it is dropped with it, and whoever sends ends."""
    app, port = talker
    _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
    writer.write(UPGRADE)
    async with asyncio.timeout(LONG):
        await app.over.wait()
    assert isinstance(app.fault, OSError)
    writer.close()
