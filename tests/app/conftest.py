"""Servers on loopback as people's machines have them: good ones, strange ones, silent ones."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

Serve = Callable[[bytes | None], Awaitable[str]]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """Start a server that answers every request with these bytes, or never; its base URL.

    The path it was asked for replaces `PATH` in the answer.
    """
    servers: list[asyncio.Server] = []
    busy: set[asyncio.Task[Any]] = set()

    async def start(answer: bytes | None) -> str:
        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task
            busy.add(task)
            try:
                head = await reader.readuntil(b"\r\n\r\n")
                if answer is None:
                    await asyncio.Event().wait()
                else:
                    writer.write(answer.replace(b"PATH", head.split()[1]))
                    await writer.drain()
            except asyncio.CancelledError:
                pass  # the test is over
            finally:
                busy.discard(task)
                writer.close()

        server = await asyncio.start_server(handle, "127.0.0.1", 0)
        servers.append(server)
        host, port = server.sockets[0].getsockname()
        return f"http://{host}:{port}/v1"

    yield start
    for server in servers:
        server.close()
    for task in list(busy):
        task.cancel()
    await asyncio.gather(*busy, return_exceptions=True)


def response(body: bytes, status: str = "200 OK", headers: bytes = b"") -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n"
    return head.encode() + headers + b"\r\n" + body


@pytest.fixture
def listing() -> Callable[..., bytes]:
    """The response of a server that has these models."""

    def make(*names: str) -> bytes:
        rows = [{"id": name, "object": "model"} for name in names]
        return response(json.dumps({"object": "list", "data": rows}).encode())

    return make


@pytest.fixture
def respond() -> Callable[..., bytes]:
    return response
