"""Where connections come in."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from starlette.requests import HTTPConnection
from starlette.types import Receive, Scope, Send

from dodona.gateway.state import GatewayState
from dodona.gateway.websocket.call import SessionLocks
from dodona.gateway.websocket.connection import Connection
from dodona.gateway.websocket.handshake import introduced, visitor_at_once
from dodona.gateway.websocket.methods import METHODS
from dodona.gateway.websocket.writer import Disconnected, FrameWriter

PATH: Final = "/ws"


class Endpoint:
    """An ASGI application for upgrades alone; the guard has seen them."""

    def __init__(self, gate: GatewayState) -> None:
        self._gate = gate
        self._turns = SessionLocks()
        self._methods = {method.name: method for method in METHODS}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (await receive())["type"] != "websocket.connect":
            return
        door, line = HTTPConnection(scope), FrameWriter(send)
        with suppress(Disconnected):
            await line.accept()
            visitor = visitor_at_once(door)
            if visitor is None:
                visitor = await introduced(self._gate, door, receive=receive, line=line)
            if visitor is not None:
                connection = Connection(
                    self._gate, visitor, methods=self._methods, turns=self._turns, line=line
                )
                await connection.serve(door, receive)
