"""Server-sent events.

A client that disconnects ends only its stream, not the run. A slow client delays only its stream.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import aclosing, suppress
from typing import Final, TypeAlias

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from dodona.core.chunks import StreamChunk
from dodona.core.errors import DodonaError, as_json
from dodona.gateway.http.responses import encode_json
from dodona.gateway.http.tasks import first_completed, wait_for_disconnect
from dodona.gateway.security.token_monitor import TokenWatch
from dodona.gateway.shutdown import Shutdown

_log = logging.getLogger(__name__)

HEARTBEAT: Final = b": \n\n"
_FIRST_HEARTBEAT_SECONDS = 1.0  # seconds before the headers and a heartbeat are sent
_ERROR_TIMEOUT_SECONDS = 0.5  # for a client to read pending data and the last event
_HEADERS: Final = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache",
    "x-accel-buffering": "no",  # a proxy must not buffer a stream
}


ErrorEncoder: TypeAlias = Callable[[DodonaError], bytes]


def encode_error(error: DodonaError) -> bytes:
    """Encode an error as an event of its own type, for streams whose data is no error."""
    return b"event: error\ndata: %b\n\n" % encode_json(as_json(error))


def encode_events(chunks: Iterable[StreamChunk]) -> bytes:
    """Encode a batch of chunks. Encoded JSON has no line breaks, so each event is two lines."""
    return b"".join([_encode_event(chunk) for chunk in chunks])


def _encode_event(numbered: StreamChunk) -> bytes:
    # The position is written into the encoded chunk: a dict of both would cost twice the time.
    run_id, seq = numbered.run_id, numbered.seq
    chunk = encode_json(numbered.chunk)[:-1]
    return b'id: %d\ndata: %b,"run_id":%d,"seq":%d}\n\n' % (seq, chunk, run_id, seq)


class EventStreamResponse(Response):
    """Streams pieces of bytes. An error before the first piece is a normal error response.

    An empty piece only sends the headers. A stream that ends without any piece is answered with
    204, which keeps a browser's EventSource from reconnecting. If the token is revoked or expires,
    the stream ends with an error.
    """

    def __init__(
        self,
        pieces: AsyncGenerator[bytes],
        *,
        shutdown: Shutdown,
        token_watch: TokenWatch,
        encode_error: ErrorEncoder,
        heartbeat_interval: float,
        headers: Mapping[str, str] | None = None,
        begins_within: float = _FIRST_HEARTBEAT_SECONDS,
    ) -> None:
        super().__init__(headers={**_HEADERS, **(headers or {})})
        del self.headers["content-length"]
        self._pieces = pieces
        self._shutdown = shutdown
        self._token_watch = token_watch
        self._encode_error = encode_error
        self._heartbeat_interval = heartbeat_interval
        self._begins_within = begins_within

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        writer = _SseWriter(send, self.raw_headers)
        is_connected = True

        async def watch_disconnect() -> None:
            nonlocal is_connected
            await wait_for_disconnect(receive)
            is_connected = False

        try:
            with self._token_watch:
                await first_completed(
                    self._send_pieces(writer),
                    watch_disconnect(),
                    self._shutdown.wait_finished(),
                    self._token_watch.wait_ended(),
                    writer.send_heartbeats(
                        self._heartbeat_interval, first_interval=self._begins_within
                    ),
                )
        except Exception:
            if not writer.has_started:
                raise
            # Cut the stream without ending it: the client reconnects and then gets the error.
            _log.exception("stream failed: %s", scope["path"])
            return
        if not is_connected:
            return
        if self._token_watch.error is not None:
            await self._end_with_error(writer, self._token_watch.error)
        else:
            await writer.end(is_complete=not self._shutdown.has_started)

    async def _end_with_error(self, writer: _SseWriter, error: DodonaError) -> None:
        if not writer.has_started:
            raise error
        with suppress(TimeoutError):  # it does not read: the connection is cut
            async with asyncio.timeout(_ERROR_TIMEOUT_SECONDS):
                await writer.send(self._encode_error(error))
                await writer.end(is_complete=True)

    async def _send_pieces(self, writer: _SseWriter) -> None:
        async with aclosing(self._pieces) as pieces:
            async for piece in pieces:
                await writer.send(piece)


class _SseWriter:
    """Serializes the messages to one client, and sends the headers first."""

    def __init__(self, send: Send, headers: list[tuple[bytes, bytes]]) -> None:
        self._send = send
        self._headers = headers
        self._lock = asyncio.Lock()
        self._sent_count = 0
        self.has_started = False

    async def send(self, piece: bytes) -> None:
        async with self._lock:
            if not self.has_started:
                await self._send_start(200)
            if piece:
                self._sent_count += 1
                await self._send({"type": "http.response.body", "body": piece, "more_body": True})

    async def send_heartbeats(self, interval: float, *, first_interval: float) -> None:
        """Send a comment after each interval without data; the first interval is shorter."""
        pause = min(interval, first_interval)
        while True:
            before = self._sent_count
            await asyncio.sleep(pause)
            pause = interval
            if before == self._sent_count:
                await self.send(HEARTBEAT)

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
