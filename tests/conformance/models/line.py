"""A line between a model and its server that keeps what was sent and sees who hangs up."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

LAST_CHUNK = b"0\r\n\r\n"
PATIENCE = 15.0  # how long a busy machine is waited for


@dataclass(frozen=True, slots=True)
class Sent:
    """A request as it was on the wire."""

    body: bytes

    @property
    def json(self) -> dict[str, Any]:
        return json.loads(self.body)


class Line:
    """Passes bytes on, both ways, unchanged, between whoever connects and one server.

    With `closes_after_answer` it closes a connection after one answer and does not say so before.
    """

    def __init__(self, host: str, port: int) -> None:
        self._server = (host, port)
        self._asked = asyncio.Event()
        self._hung_up = asyncio.Event()
        self._calls: set[asyncio.Task[None]] = set()
        self._outgoing: list[bytearray] = []
        self.incoming = bytearray()
        self.closes_after_answer = False
        self.url = ""

    @property
    def requests(self) -> list[Sent]:
        """Every whole request, in the order of their connections."""
        return [sent for outgoing in self._outgoing for sent in _requests(bytes(outgoing))]

    async def asked(self) -> None:
        """Wait until something was sent."""
        async with asyncio.timeout(PATIENCE):
            await self._asked.wait()

    async def hung_up(self) -> None:
        """Wait until a client closes its connection while the server's end is still open."""
        async with asyncio.timeout(PATIENCE):
            await self._hung_up.wait()

    @classmethod
    @asynccontextmanager
    async def to(cls, host: str, port: int) -> AsyncGenerator[Line]:
        line = cls(host, port)
        server = await asyncio.start_server(line._ring, "127.0.0.1", 0)
        line.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield line
        finally:
            server.close()
            for call in line._calls:
                call.cancel()
            await asyncio.gather(*line._calls, return_exceptions=True)

    def _ring(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        call = asyncio.create_task(self._connect(client, to_client))
        self._calls.add(call)

    async def _connect(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        server, to_server = await asyncio.open_connection(*self._server)
        self._outgoing.append(outgoing := bytearray())
        async with asyncio.TaskGroup() as group:
            answering = group.create_task(self._answer(server, to_client))
            async for piece in _passed_on(client, to_server):
                outgoing += piece
                self._asked.set()
            if not answering.done():
                self._hung_up.set()

    async def _answer(self, server: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        async for piece in _passed_on(server, to_client):
            self.incoming += piece
            if self.closes_after_answer and self.incoming.endswith(LAST_CHUNK):
                to_client.close()


async def _passed_on(
    source: asyncio.StreamReader, target: asyncio.StreamWriter
) -> AsyncIterator[bytes]:
    """Each piece, after it was passed on.

    The source may end by a close or by a reset; then the target is closed too.
    """
    try:
        with suppress(ConnectionError):
            while piece := await source.read(65536):
                target.write(piece)
                await target.drain()
                yield piece
    finally:
        target.close()


def _requests(sent: bytes) -> list[Sent]:
    found: list[Sent] = []
    while b"\r\n\r\n" in sent:
        head, _, rest = sent.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"\r\ncontent-length: ")[2].split(b"\r\n")[0])
        if len(rest) < length:
            break
        found.append(Sent(rest[:length]))
        sent = rest[length:]
    return found
