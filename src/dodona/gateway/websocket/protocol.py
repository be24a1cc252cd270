"""The protocol on the wire: uvicorn's, with our ways to end."""

from __future__ import annotations

from typing import Any, Final

from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

MAX_REQUESTS: Final = 32  # that are being worked on at once
MAX_AWAITED_RUNS: Final = 1_000  # runs whose events or answers it waits for at once
TOKEN_TIMEOUT_SECONDS: Final = 10.0  # in which a token must come, where one is required
PING_INTERVAL: Final = 30.0  # seconds; one that does not answer for as long again is gone
MAX_ID_LENGTH: Final = 100  # characters of a request's id
# A frame larger than `GatewaySettings.max_body_bytes` gets an error response. One larger than
# this closes the connection, because answering it would mean holding it in memory.
MAX_MESSAGE_BYTES: Final = 8 << 20  # bytes

UNAUTHORIZED_CLOSE_CODE: Final = (
    4001  # the code that a connection without a good token is closed with
)


GOING_AWAY: Final = 1001
_CLOSE_TIMEOUT_SECONDS: Final = (
    10.0  # seconds in which a client must read what is left for it, and leave
)


class WebSocketProtocol(WebSocketsSansIOProtocol):
    """A client that does not read cannot keep a connection that is over."""

    def shutdown(self) -> None:
        """By 1001 clients know that they may come back."""
        if self.handshake_complete and not self.close_sent and not self.transport.is_closing():
            self.queue.put_nowait({"type": "websocket.disconnect", "code": GOING_AWAY})
            self.conn.send_close(GOING_AWAY, "Dodona is stopping.")
            self.transport.write(b"".join(self.conn.data_to_send()))
            self.close_sent = True
        super().shutdown()

    def keepalive_timeout(self) -> None:
        super().keepalive_timeout()
        self.transport.abort()  # what it has not read by now, it will not read

    async def send(self, message: Any) -> None:
        if self.close_sent and message["type"] == "websocket.send":
            raise ClientDisconnected  # closed by the protocol, beside whoever sends
        await super().send(message)
        if message["type"] == "websocket.close":
            self.loop.call_later(_CLOSE_TIMEOUT_SECONDS, self.transport.abort)
