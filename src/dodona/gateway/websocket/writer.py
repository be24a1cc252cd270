"""Writes frames to one client, one at a time.

A sender waits while the client's buffer is full, so a slow client delays only its own frames. A
client that does not answer the server's pings is disconnected.
"""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.types import Message, Send

from dodona.core.chunks import StreamChunk
from dodona.gateway.http.responses import encode_json
from dodona.gateway.websocket.events import to_event


class Disconnected(Exception):
    """The client has disconnected."""


class FrameWriter:
    """Sends frames. Raises Disconnected after the client has disconnected."""

    __slots__ = ("_lock", "_send")

    def __init__(self, send: Send) -> None:
        self._send = send
        self._lock = asyncio.Lock()

    async def accept(self) -> None:
        await self._send_message({"type": "websocket.accept"})

    async def send(self, frame: Any) -> None:
        async with self._lock:
            await self._send_frame(frame)

    async def send_chunk(self, chunk: StreamChunk, session_key: str | None) -> None:
        """Send an event. It is encoded only under the lock: a thousand of them may be waiting."""
        async with self._lock:
            await self._send_frame(to_event(chunk, session_key))

    async def close(self, code: int, reason: str) -> None:
        """Close the connection, ahead of senders that wait for a slow client."""
        await self._send_message({"type": "websocket.close", "code": code, "reason": reason})

    async def _send_frame(self, frame: Any) -> None:
        await self._send_message({"type": "websocket.send", "text": encode_json(frame).decode()})

    async def _send_message(self, message: Message) -> None:
        try:
            await self._send(message)
        except OSError as error:
            raise Disconnected from error
