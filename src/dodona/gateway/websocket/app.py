"""The ASGI application at `/ws`."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from starlette.requests import HTTPConnection
from starlette.types import Receive, Scope, Send

from dodona.gateway.state import GatewayState
from dodona.gateway.websocket.call import SessionLocks
from dodona.gateway.websocket.connection import Connection
from dodona.gateway.websocket.handshake import identity_from_scope, receive_identity
from dodona.gateway.websocket.methods import METHODS
from dodona.gateway.websocket.writer import Disconnected, FrameWriter

PATH: Final = "/ws"


class WebSocketApp:
    """Serves WebSocket connections. The middleware has checked the upgrade request."""

    def __init__(self, state: GatewayState) -> None:
        self._state = state
        self._session_locks = SessionLocks()
        self._methods = {method.name: method for method in METHODS}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (await receive())["type"] != "websocket.connect":
            return
        http_connection, writer = HTTPConnection(scope), FrameWriter(send)
        with suppress(Disconnected):
            await writer.accept()
            identity = identity_from_scope(http_connection)
            if identity is None:
                identity = await receive_identity(
                    self._state, http_connection, receive=receive, writer=writer
                )
            if identity is not None:
                connection = Connection(
                    self._state,
                    identity,
                    methods=self._methods,
                    session_locks=self._session_locks,
                    writer=writer,
                )
                await connection.serve(http_connection, receive)
