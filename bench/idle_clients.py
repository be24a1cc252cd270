"""Clients of `/ws` for the benchmark: thousands of idle ones, a few that chat, one that pings.

    python bench/idle_clients.py URL COUNT CHATTING SECONDS

Each client is a minimal protocol, so that ten thousand cost little and the gateway is what gets
measured. The program prints a line of JSON when all are connected, waits for a line on stdin, and
prints its measurements.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import random
import resource
import sys
from time import perf_counter
from typing import Any
from urllib.parse import urlsplit

AT_ONCE = 200  # connections being opened at once
PINGS = 200  # per second, over all connections
UPGRADE = (
    "GET /ws HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)
TEXT, CLOSE, PING, PONG = 0x81, 0x88, 0x89, 0x8A


class Client(asyncio.Protocol):
    """Answers WebSocket pings; messages go to `heard`."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.frames: asyncio.Queue[bytes] | None = None
        self.waiting: asyncio.Future[bytes] | None = None
        self.is_open = True
        self._is_upgraded = False
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.write(UPGRADE.format(host=self.host).encode())

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False

    def data_received(self, data: bytes) -> None:
        data = self._rest + data
        if not self._is_upgraded:
            head, found, data = data.partition(b"\r\n\r\n")
            if not found:
                self._rest = head
                return
            self._is_upgraded = True
        self._rest = self._read(data)

    def _read(self, data: bytes) -> bytes:
        """Process all complete frames, and return the incomplete rest."""
        while len(data) >= 2:
            size, start = data[1], 2
            if size >= 126:
                start = 4 if size == 126 else 10
                size = int.from_bytes(data[2:start])
            if len(data) < start + size:
                break
            self._take(data[0], data[start : start + size])
            data = data[start + size :]
        return data

    def _take(self, kind: int, payload: bytes) -> None:
        if kind == PING:
            self.write(PONG, payload)
        elif kind == TEXT:
            if self.frames is not None:
                self.frames.put_nowait(payload)
            elif self.waiting is not None and not self.waiting.done():
                self.waiting.set_result(payload)

    def write(self, kind: int, payload: bytes) -> None:
        size = len(payload)
        head = bytes([kind, 0x80 | size]) if size < 126 else bytes([kind, 0xFE]) + size.to_bytes(2)
        self.transport.write(head + bytes(4) + payload)

    def ask(self, request: dict[str, Any]) -> None:
        self.write(TEXT, json.dumps(request).encode())

    async def heard(self) -> bytes:
        """Return the next frame of a client that stores none."""
        self.waiting = asyncio.get_running_loop().create_future()
        return await self.waiting


async def connect(address: tuple[str, int], count: int) -> list[Client]:
    """Connect all clients and wait for each greeting."""
    loop = asyncio.get_running_loop()
    host = f"{address[0]}:{address[1]}"
    room = asyncio.Semaphore(AT_ONCE)

    async def one() -> Client:
        async with room:
            _, client = await loop.create_connection(lambda: Client(host), *address)
            await client.heard()
            client.waiting = None
            return client

    return await asyncio.gather(*(one() for _ in range(count)))


class Chats:
    """Clients that ask again as soon as they are answered."""

    def __init__(self) -> None:
        self.answers = 0
        self.events = 0
        self.faults: list[str] = []

    async def chat(self, client: Client, number: int) -> None:
        client.frames = asyncio.Queue()
        await asyncio.sleep(random.random() * 2)
        while True:
            params = {"channel": "bench", "account": "bot", "peer": f"p{number}", "content": "Go."}
            client.ask({"id": 1, "method": "chat.send", "params": params})
            while (frame := json.loads(await client.frames.get())).get("event") != "done":
                self.events += "event" in frame
                if "error" in frame or frame.get("event") == "error":
                    self.faults.append(json.dumps(frame)[:300])
                    await asyncio.sleep(1)
                    break
            else:
                self.answers += 1


async def ping(clients: list[Client], seconds: float) -> list[float]:
    """Round-trip times, in milliseconds, of pings from random idle connections."""
    found: list[float] = []
    pending: set[asyncio.Task[None]] = set()

    async def one(client: Client) -> None:
        begun = perf_counter()
        client.ask({"id": 1, "method": "ping"})
        await client.heard()
        found.append((perf_counter() - begun) * 1000)

    loop = asyncio.get_running_loop()
    start = loop.time()
    for number, client in enumerate(random.sample(clients, int(seconds * PINGS))):
        # On schedule: a slow reply must not delay the pings after it.
        await asyncio.sleep(max(0.0, start + number / PINGS - loop.time()))
        task = asyncio.create_task(one(client))
        pending.add(task)
        task.add_done_callback(pending.discard)
    await asyncio.gather(*pending)
    return sorted(found)


def tell(value: Any) -> None:
    print(json.dumps(value), flush=True)


async def listen() -> None:
    """Wait for a line from the parent process."""
    await asyncio.to_thread(sys.stdin.readline)


async def main(url: str, count: int, chatting: int, seconds: float) -> None:
    parts = urlsplit(url)
    assert parts.hostname
    assert parts.port
    begun = perf_counter()
    clients = await connect((parts.hostname, parts.port), count)
    gc.freeze()  # garbage collection pauses here would look like delays of the gateway
    tell({"connected": len(clients), "seconds": perf_counter() - begun})
    await listen()
    idle = clients[chatting:]
    quiet = await ping(idle, min(seconds, len(idle) / PINGS))
    tell({"quiet": quiet})
    await listen()
    chats = Chats()
    tasks = [asyncio.create_task(chats.chat(c, n)) for n, c in enumerate(clients[:chatting])]
    await asyncio.sleep(3)
    before = (chats.answers, chats.events)
    cpu = os.times().user + os.times().system
    found = await ping(idle, min(seconds, len(idle) / PINGS))
    tell(
        {
            "ping": found,
            "answers": chats.answers - before[0],
            "events": chats.events - before[1],
            "faults": chats.faults[:5],
            "open": sum(client.is_open for client in clients),
            "cpu": os.times().user + os.times().system - cpu,
        }
    )
    await listen()
    for task in tasks:
        task.cancel()
    for client in clients:
        client.transport.abort()


if __name__ == "__main__":
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])))
