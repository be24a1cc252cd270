"""The limits of a connection, and uvicorn's WebSocket protocol with a stricter shutdown."""

from __future__ import annotations

from typing import Any, Final

from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

MAX_OPEN_REQUESTS: Final = 32  # concurrent requests per connection
MAX_AWAITED_RUNS: Final = 1_000  # runs that a connection may wait for at once
TOKEN_TIMEOUT_SECONDS: Final = 10.0  # to send a token, where one is required
PING_INTERVAL: Final = (
    30.0  # seconds; without a pong for another interval, the client is disconnected
)
MAX_ID_LENGTH: Final = 100  # characters of a request id
# A frame larger than `GatewaySettings.max_body_bytes` gets an error response. One larger than
# this closes the connection, because answering it would mean holding it in memory.
MAX_MESSAGE_BYTES: Final = 8 << 20  # bytes

UNAUTHORIZED_CLOSE_CODE: Final = 4001
GOING_AWAY: Final = 1001
_CLOSE_TIMEOUT_SECONDS: Final = 10.0  # for a client to read pending data and close


class WebSocketProtocol(WebSocketsSansIOProtocol):
    """Drops the connection of a client that does not read, instead of waiting for it."""

    def shutdown(self) -> None:
        """Close with 1001 (going away), so that clients know they may reconnect."""
        if self.handshake_complete and not self.close_sent and not self.transport.is_closing():
            self.queue.put_nowait({"type": "websocket.disconnect", "code": GOING_AWAY})
            self.conn.send_close(GOING_AWAY, "Dodona is shutting down.")
            self.transport.write(b"".join(self.conn.data_to_send()))
            self.close_sent = True
        super().shutdown()

    def keepalive_timeout(self) -> None:
        super().keepalive_timeout()
        self.transport.abort()  # it does not read any more: do not wait for pending data

    async def send(self, message: Any) -> None:
        is_close = message["type"] == "websocket.close"
        if is_close:
            # It does not wait for a slow client; senders that do are woken and find it closed.
            self.writable.set()
        else:
            await self.writable.wait()
        if self.close_sent and message["type"] in ("websocket.send", "websocket.close"):
            raise ClientDisconnected
        await super().send(message)
        if is_close:
            self.loop.call_later(_CLOSE_TIMEOUT_SECONDS, self.transport.abort)
