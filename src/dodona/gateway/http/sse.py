"""Server-sent events: what happens, as it happens, to one client.

A client that leaves stops its stream and nothing else; a slow one is waited for by its stream only.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import aclosing
from typing import Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from dodona.core.chunks import StreamChunk
from dodona.gateway.http.responses import encode_json
from dodona.gateway.http.tasks import first_completed, wait_disconnect
from dodona.gateway.shutdown import Shutdown

_log = logging.getLogger(__name__)

KEEPALIVE: Final = b": \n\n"
_FIRST_HEARTBEAT_SECONDS = 1.0  # seconds that a client may wait to know that a stream begins
_HEADERS: Final = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache",
    "x-accel-buffering": "no",  # a proxy that collects would make a burst of a stream
}


def encode_events(chunks: Iterable[StreamChunk]) -> bytes:
    """A batch as one piece. JSON has no line breaks, so every event is two lines."""
    return b"".join(
        [b"id: %d\ndata: %b\n\n" % (chunk.seq, encode_json(chunk.as_json())) for chunk in chunks]
    )


class EventStream(Response):
    """Sends pieces as they come. Until the first, an error is still a plain answer.

    An empty piece only begins the stream. One that ends with nothing said is 204, by which a
    browser's EventSource knows not to come back.
    """

    def __init__(
        self,
        pieces: AsyncGenerator[bytes],
        *,
        shutdown: Shutdown,
        heartbeat_interval: float,
        headers: Mapping[str, str] | None = None,
        begins_within: float = _FIRST_HEARTBEAT_SECONDS,
    ) -> None:
        super().__init__(headers={**_HEADERS, **(headers or {})})
        del self.headers["content-length"]
        self._pieces = pieces
        self._shutdown = shutdown
        self._heartbeat_interval = heartbeat_interval
        self._begins_within = begins_within

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        line = _SseWriter(send, self.raw_headers)
        is_there = True

        async def listen() -> None:
            nonlocal is_there
            await wait_disconnect(receive)
            is_there = False

        try:
            await first_completed(
                self._send_pieces(line),
                listen(),
                self._shutdown.wait_finished(),
                line.send_heartbeats(self._heartbeat_interval, first_interval=self._begins_within),
            )
        except Exception:
            if not line.has_started:
                raise
            # Cut, not ended: the client comes back, and is then told what is wrong.
            _log.exception("a stream broke: %s", scope["path"])
            return
        if is_there:
            await line.end(is_complete=not self._shutdown.has_started)

    async def _send_pieces(self, writer: _SseWriter) -> None:
        async with aclosing(self._pieces) as pieces:
            async for piece in pieces:
                await writer.send(piece)


class _SseWriter:
    """The way to the client. One message at a time, the head of the answer before the rest."""

    def __init__(self, send: Send, headers: list[tuple[bytes, bytes]]) -> None:
        self._send = send
        self._headers = headers
        self._lock = asyncio.Lock()
        self._sent_count = 0  # pieces
        self.has_started = False

    async def send(self, piece: bytes) -> None:
        async with self._lock:
            if not self.has_started:
                await self._send_start(200)
            if piece:
                self._sent_count += 1
                await self._send({"type": "http.response.body", "body": piece, "more_body": True})

    async def send_heartbeats(self, interval: float, *, first_interval: float) -> None:
        """A sign of life whenever nothing was sent for so long; the first one comes sooner."""
        pause = min(interval, first_interval)
        while True:
            before = self._sent_count
            await asyncio.sleep(pause)
            pause = interval
            if before == self._sent_count:
                await self.send(KEEPALIVE)

    async def end(self, *, is_complete: bool) -> None:
        async with self._lock:
            if not self.has_started:
                await self._send_start(204 if is_complete else 200)
            await self._send({"type": "http.response.body", "body": b""})

    async def _send_start(self, status: int) -> None:
        self.has_started = True
        await self._send(
            {"type": "http.response.start", "status": status, "headers": self._headers}
        )
