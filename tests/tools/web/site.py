"""A web server on loopback that answers as it is told, also in ways no good one would."""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

Speak = Callable[[asyncio.StreamWriter], Awaitable[None]]


def answer(
    body: bytes | str = b"", status: str = "200 OK", kind: str = "text/html", **headers: str
) -> bytes:
    """The bytes of a response; `Content_Encoding="gzip"` is a header."""
    raw = body.encode() if isinstance(body, str) else body
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(raw)}"]
    if kind:
        lines.append(f"Content-Type: {kind}")
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + raw


def redirect(to: str, status: str = "302 Found") -> bytes:
    return answer(status=status, Location=to)


@dataclass
class Asked:
    """A request that came in."""

    path: str
    headers: dict[str, str]


@dataclass
class Site:
    """`pages` are responses by path, without the query; what is not there is a 404."""

    port: int = 0
    pages: dict[str, bytes | Speak] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)
    connections: int = 0
    busy: int = 0
    busiest: int = 0

    def url(self, path: str = "/", host: str = "site.test", scheme: str = "http") -> str:
        return f"{scheme}://{host}:{self.port}{path}"

    def paths(self) -> list[str]:
        return [asked.path for asked in self.asked]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                await self._answer(head.decode("latin-1"), writer)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # the client has enough, or the test is over
        finally:
            writer.close()

    async def _answer(self, head: str, writer: asyncio.StreamWriter) -> None:
        first, *lines = head.strip().split("\r\n")
        path = first.split(" ")[1]
        pairs = (line.split(": ", 1) for line in lines)
        self.asked.append(Asked(path, {name.lower(): value for name, value in pairs}))
        self.busy += 1
        self.busiest = max(self.busy, self.busiest)
        try:
            said = self.pages.get(path.partition("?")[0], answer("gone", "404 Not Found"))
            if isinstance(said, bytes):
                writer.write(said)
                await writer.drain()
            else:
                await said(writer)
        finally:
            self.busy -= 1


@asynccontextmanager
async def site_up(context: ssl.SSLContext | None = None) -> AsyncIterator[Site]:
    site = Site()
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(site.serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        await task

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    site.port = server.sockets[0].getsockname()[1]
    try:
        yield site
    finally:
        server.close()
        for task in tuple(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Names:
    """A resolver: each name has its answers, one after the other; the last one stays."""

    def __init__(self, **answers: Sequence[Sequence[str]]) -> None:
        self.answers = {name.replace("_", "."): list(given) for name, given in answers.items()}
        self.asked: Counter[str] = Counter()

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked[host] += 1
        given = self.answers.get(host)
        if given is None:
            raise OSError("no such name")
        return given.pop(0) if len(given) > 1 else given[0]


def names(**more: Sequence[Sequence[str]]) -> Names:
    """`site.test` is this machine."""
    return Names(site_test=[["127.0.0.1"]], **more)
