"""The way out to one client: one frame at a time.

Whoever sends waits for room. So a client that does not read holds up what is meant for it and
nothing else. One that does not even answer the server's pings is gone.
"""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.types import Message, Send

from dodona.core.chunks import Chunk
from dodona.gateway.http.responses import encoded
from dodona.gateway.websocket.events import to_event


class Disconnected(Exception):
    """Nobody is there any more."""


class FrameWriter:
    """Raises Gone once nobody is there."""

    __slots__ = ("_send", "_turn")

    def __init__(self, send: Send) -> None:
        self._send = send
        self._turn = asyncio.Lock()

    async def accept(self) -> None:
        await self._hand_over({"type": "websocket.accept"})

    async def send(self, frame: Any) -> None:
        async with self._turn:
            await self._put(frame)

    async def tell(self, chunk: Chunk, session_key: str | None) -> None:
        """An event; it is written when its turn comes, for a thousand of them may wait."""
        async with self._turn:
            await self._put(to_event(chunk, session_key))

    async def close(self, code: int, reason: str) -> None:
        async with self._turn:
            await self._hand_over({"type": "websocket.close", "code": code, "reason": reason})

    async def _put(self, frame: Any) -> None:
        await self._hand_over({"type": "websocket.send", "text": encoded(frame).decode()})

    async def _hand_over(self, message: Message) -> None:
        try:
            await self._send(message)
        except OSError as error:
            raise Disconnected from error
