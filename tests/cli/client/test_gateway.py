"""The client of a gateway, against one that breaks off, comes back, or never does."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from dodona.agent.question import Question
from dodona.cli.client import gateway as gateway_client
from dodona.cli.client.gateway import GatewayClient
from dodona.cli.client.gateway_file import Announcement
from dodona.core.errors import BadRequest, DodonaError, NotFound

QUESTION = Question(question="Who speaks?")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Serve = Callable[..., Awaitable[GatewayClient]]


def chunk(seq: int, **body: Any) -> dict[str, Any]:
    return {**body, "run_id": 7, "seq": seq}


TEXTS = [chunk(1, type="content", content="The "), chunk(2, type="content", content="oak.")]
DONE = chunk(3, type="done", tokens_used=1, model_used="x", context_id="node-7")


def streaming(*chunks: dict[str, Any], cut: bool = False) -> Handler:
    """Send these; then end well, or break the line."""

    async def handle(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"dodona-run": "7"})
        response.content_type = "text/event-stream"
        await response.prepare(request)
        await response.write(b": \n\n")
        for each in chunks:
            event = f"id: {each['seq']}\ndata: {json.dumps(each)}\n\n"
            await response.write(event.encode())
        if cut and request.transport is not None:
            request.transport.close()  # what was written arrives; the end of it does not
        return response

    return handle


@pytest.fixture
def seen() -> list[str]:
    """What the client said it had seen, each time it came back."""
    return []


@pytest.fixture
async def serve(
    tmp_path: Path, seen: list[str], monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Serve]:
    """A client of a server with these handlers: of the question, then of each time it comes back.

    The last one is for all that follow.
    """
    monkeypatch.setattr(gateway_client, "INITIAL_BACKOFF", 0.001)

    async with AsyncExitStack() as stack:

        async def start(first: Handler, *later: Handler, patience: float = 30.0) -> GatewayClient:
            left = list(later)

            async def events(request: web.Request) -> web.StreamResponse:
                seen.append(request.headers["Last-Event-ID"])
                handle = left.pop(0) if len(left) > 1 else left[0]
                return await handle(request)

            app = web.Application()
            app.router.add_post("/api/oracle/stream", first)
            app.router.add_get("/api/runs/7/events", events)
            runner = web.AppRunner(app)
            await runner.setup()
            stack.push_async_callback(runner.cleanup)
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            url = f"http://127.0.0.1:{runner.addresses[0][1]}"
            announced = Announcement(url, os.getpid(), "store")
            opened = gateway_client.gateway_client(announced, tmp_path, reconnect_timeout=patience)
            return await stack.enter_async_context(opened)

        yield start


async def read(client: GatewayClient) -> list[int]:
    return [each["seq"] async for each in client.stream(QUESTION)]


async def test_a_stream_to_its_end(serve: Serve) -> None:
    """One request, each chunk once."""
    client = await serve(streaming(*TEXTS, DONE), streaming())
    assert await read(client) == [1, 2, 3]


@pytest.mark.parametrize("cut", [True, False], ids=["cut", "ended"])
async def test_a_stream_that_breaks_is_taken_up(
    serve: Serve, seen: list[str], *, cut: bool
) -> None:
    """After the last chunk that was seen; one that comes twice is passed over."""
    client = await serve(streaming(TEXTS[0], cut=cut), streaming(*TEXTS, cut=cut), streaming(DONE))
    assert await read(client) == [1, 2, 3]
    assert seen == ["1", "2"]


async def test_a_stream_that_breaks_before_its_first_chunk(serve: Serve) -> None:
    """The run's number is in the head of the answer."""
    client = await serve(streaming(cut=True), streaming(*TEXTS, DONE))
    assert await read(client) == [1, 2, 3]


async def test_a_gateway_on_its_way_up(serve: Serve) -> None:
    """Is waited for."""

    async def starting(_: web.Request) -> web.StreamResponse:
        return web.json_response({"error": {"code": "leaving", "message": "x"}}, status=503)

    client = await serve(streaming(TEXTS[0]), starting, starting, streaming(DONE))
    assert await read(client) == [1, 3]


async def test_a_gateway_that_never_comes_back(serve: Serve) -> None:
    """It is told where to look."""
    client = await serve(streaming(TEXTS[0]), streaming(cut=True), patience=0.01)
    with pytest.raises(DodonaError, match="dodona run show 7"):
        await read(client)


async def test_a_run_that_is_gone(serve: Serve) -> None:
    """What the gateway says is told."""

    async def gone(_: web.Request) -> web.StreamResponse:
        told = {"code": "not_found", "message": "there is no run 7.", "hint": ""}
        return web.json_response({"error": told}, status=404)

    client = await serve(streaming(TEXTS[0]), gone)
    with pytest.raises(NotFound, match="there is no run 7"):
        await read(client)


async def test_a_question_that_is_refused(serve: Serve) -> None:
    """As the error that it is."""

    async def refuse(_: web.Request) -> web.StreamResponse:
        told = {"code": "bad_request", "message": "no.", "hint": "Yes."}
        return web.json_response({"error": told}, status=400)

    client = await serve(refuse, streaming())
    with pytest.raises(BadRequest, match="Yes"):
        await read(client)


async def test_a_strange_answer(serve: Serve) -> None:
    """Something else is at that place."""

    async def strange(_: web.Request) -> web.StreamResponse:
        return web.Response(status=500, text="<html>")

    client = await serve(strange, streaming())
    with pytest.raises(DodonaError, match="the gateway responded with 500"):
        await read(client)


async def test_nobody_is_there(tmp_path: Path) -> None:
    """The question was not taken in, as far as we know; it is told."""
    announced = Announcement("http://127.0.0.1:9", os.getpid(), "store")
    async with gateway_client.gateway_client(announced, tmp_path) as client:
        assert not await client.is_reachable()
        with pytest.raises(DodonaError, match="dodona run list"):
            await read(client)
