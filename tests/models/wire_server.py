"""A provider on loopback: real HTTP, scripted answers, and a record of what was asked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from aiohttp import web

from dodona.core.errors import ProviderError
from dodona.core.ports.model import (
    Done,
    Model,
    ModelEvent,
    ModelRequest,
    TextDelta,
    ThinkingDelta,
)
from dodona.models import Timeouts, connect
from dodona.net.http import HttpPool
from dodona.net.redactor import Redactor

KEY = "a-key-that-opens-nothing"


@dataclass(frozen=True)
class Reply:
    """An answer in pieces, and how it ends: well, by breaking the line, or not at all."""

    pieces: Sequence[bytes] = ()
    status: int = 200
    headers: Mapping[str, str] = field(
        default_factory=lambda: {"Content-Type": "text/event-stream"}
    )
    end: Literal["well", "abort", "hang"] = "well"
    every: float = 0.0  # seconds between two pieces


@dataclass
class Asked:
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class WireServer:
    """Gives its replies in turn, the last one for ever."""

    def __init__(self, replies: Sequence[Reply]) -> None:
        self.url = ""
        self.asked: list[Asked] = []
        self.reached = asyncio.Event()  # a request is here
        self.left = asyncio.Event()  # a client went away before the end
        self.peers: set[object] = set()  # one for each connection
        self._replies = list(replies)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        self.asked.append(Asked(request.path, request.headers, body))
        self.reached.set()
        if request.transport is not None:
            self.peers.add(request.transport.get_extra_info("peername"))
        reply = self._replies.pop(0) if len(self._replies) > 1 else self._replies[0]
        response = web.StreamResponse(status=reply.status, headers=reply.headers)
        await response.prepare(request)
        try:
            for piece in reply.pieces:
                await response.write(piece)
                if reply.every:
                    await asyncio.sleep(reply.every)
            if reply.end == "hang":
                await asyncio.Event().wait()
        except (asyncio.CancelledError, ConnectionError):
            self.left.set()
            raise
        if reply.end == "abort" and request.transport is not None:
            request.transport.close()
        return response


@asynccontextmanager
async def serving(*replies: Reply) -> AsyncIterator[WireServer]:
    server = WireServer(replies)
    app = web.Application(client_max_size=64 * 1024 * 1024)
    app.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        server.url = f"http://{host}:{port}"
        yield server
    finally:
        await runner.cleanup()


@asynccontextmanager
async def talking(
    provider: str,
    *replies: Reply,
    model: str = "test-model",
    redactor: Redactor | None = None,
    timeouts: Timeouts | None = None,
) -> AsyncIterator[tuple[Model, WireServer]]:
    """A model of this provider, and the server behind it."""
    async with serving(*replies) as server, HttpPool() as http:
        yield (
            connect(
                provider,
                model,
                http=http,
                redactor=redactor or Redactor(),
                api_key=KEY,
                base_url=server.url,
                timeouts=timeouts,
            ),
            server,
        )


async def gather(
    model: Model, request: ModelRequest
) -> tuple[list[ModelEvent], ProviderError | None]:
    """All events, and the error that ended them."""
    events: list[ModelEvent] = []
    try:
        async with model.stream(request) as stream:
            async for event in stream:
                events.append(event)  # noqa: PERF401 - those before an error count
    except ProviderError as error:
        return events, error
    return events, None


def joined(events: Iterable[ModelEvent]) -> list[ModelEvent]:
    """As they are when all of them come at once."""
    found: list[ModelEvent] = []
    for event in events:
        last = found[-1] if found else None
        if isinstance(event, TextDelta) and isinstance(last, TextDelta):
            found[-1] = TextDelta(last.text + event.text)
        elif isinstance(event, ThinkingDelta) and isinstance(last, ThinkingDelta):
            found[-1] = ThinkingDelta(last.text + event.text)
        else:
            found.append(event)
    return found


async def ask(provider: str, reply: Reply, request: ModelRequest, **more: Any) -> Done:
    """The end of an answer that ends well."""
    async with talking(provider, reply, **more) as (model, _):
        events, error = await gather(model, request)
    assert error is None, error
    assert isinstance(events[-1], Done)
    return events[-1]


async def refusal(provider: str, reply: Reply, request: ModelRequest, **more: Any) -> ProviderError:
    """The error of an answer that does not."""
    async with talking(provider, reply, **more) as (model, _):
        _, error = await gather(model, request)
    assert error is not None
    return error


def sse(*datas: object) -> bytes:
    """Events on OpenAI's wire: JSON, or text as it is."""
    lines = (data if isinstance(data, str) else json.dumps(data) for data in datas)
    return "".join(f"data: {line}\n\n" for line in lines).encode()


def named(*datas: Mapping[str, Any]) -> bytes:
    """Events on Anthropic's wire, named by their type."""
    return "".join(
        f"event: {data['type']}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n" for data in datas
    ).encode()
