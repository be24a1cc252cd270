"""Dodona inside of a web application: below a prefix, with the guards of a gateway."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

import dodona
from dodona.core.errors import ConfigError
from dodona.extend.app import App
from dodona.testing import call, open_test_app
from tests.extend.test_app import LONG, Slow, book_room
from tests.gateway.talking import events

ASK = {"question": "Book the room Oak."}


@dataclass
class Host:
    """A web application with Dodona below a prefix."""

    url: str
    port: int
    client: aiohttp.ClientSession

    async def get(self, path: str, **headers: str) -> tuple[int, Any]:
        return await self.send("GET", path, None, **headers)

    async def send(self, method: str, path: str, body: Any, **headers: str) -> tuple[int, Any]:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        async with self.client.request(
            method, self.url + path, json=body, headers=named, allow_redirects=False
        ) as response:
            is_json = response.content_type == "application/json"
            return response.status, await response.json() if is_json else await response.text()


async def greet(_request: Any) -> PlainTextResponse:
    return PlainTextResponse("Hello from the host.")


@asynccontextmanager
async def host_of(app: App, prefix: str = "/agent", **options: Any) -> AsyncIterator[Host]:
    """Serve a host on loopback, with uvicorn as it is by default."""
    mount = Mount(prefix, app=dodona.asgi(app, **options))
    host = Starlette(routes=[Route("/hello", greet), mount])
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    server = uvicorn.Server(uvicorn.Config(host, log_config=None, lifespan="off"))
    server.capture_signals = nullcontext  # type: ignore[assignment,method-assign]
    task = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        async with asyncio.timeout(LONG), aiohttp.ClientSession() as client:
            yield Host(f"http://127.0.0.1:{port}", port, client)
    finally:
        server.should_exit = True
        await task


@asynccontextmanager
async def mounted(
    answers: Sequence[Any] = (), prefix: str = "/agent", **options: Any
) -> AsyncIterator[Host]:
    async with (
        open_test_app(answers, tools=[book_room]) as app,
        host_of(app, prefix, **options) as host,
    ):
        yield host


async def test_questions_are_answered_below_the_prefix() -> None:
    """As one document and as events; the host serves its own paths."""
    async with mounted([call("book_room", room="Oak"), "Booked.", "Yes."]) as host:
        assert await host.get("/hello") == (200, "Hello from the host.")
        status, answer = await host.send("POST", "/agent/api/oracle", ASK)
        assert (status, answer["answer"]) == (200, "Booked.")
        status, text = await host.send("POST", "/agent/api/oracle/stream", {"question": "Sure?"})
        assert (status, events(text)[-1]["type"]) == (200, "done")
        assert (await host.get("/agent/v1/models"))[0] == 200
        assert (await host.get("/api/oracle/context"))[0] == 404


@pytest.mark.parametrize("prefix", ["/agent", "/api", "/page", "/v1", "/a/b"])
async def test_the_page_loads_from_below_the_prefix(prefix: str) -> None:
    """With its scripts and styles, by relative links; whatever the prefix is called."""
    async with mounted(prefix=prefix) as host:
        assert (await host.get(prefix))[0] == 307
        status, page = await host.get(f"{prefix}/")
        assert status == 200
        assert 'src="page/app.js"' in page
        for file in ("app.js", "stream.js", "answer.js", "style.css", "icon.svg"):
            assert (await host.get(f"{prefix}/page/{file}"))[0] == 200
        assert (await host.get(f"{prefix}/healthz"))[0] == 200


async def test_links_have_the_prefix() -> None:
    """The server of the OpenAPI document, and the location of what was created."""
    async with mounted() as host:
        status, document = await host.get("/agent/api/openapi.json")
        assert (status, document["servers"]) == (200, [{"url": "/agent"}])
        async with host.client.post(f"{host.url}/agent/api/projects", json={"id": "oaks"}) as made:
            assert made.headers["location"] == "/agent/api/projects/oaks"
            assert made.status == 201


async def test_a_websocket_works_below_the_prefix() -> None:
    """With the server's own protocol."""
    async with (
        mounted(["Hello."]) as host,
        host.client.ws_connect(f"{host.url}/agent/ws") as connection,
    ):
        request = {"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {}}
        await connection.send_json(request)
        while (reply := await connection.receive_json()).get("id") != 1:
            pass
        assert "result" in reply


@pytest.mark.parametrize("path", ["/agent/api/projects", "/agent/metrics", "/agent/v1/models"])
async def test_only_the_local_operator_needs_no_token(path: str) -> None:
    """Signs of a proxy, and needs_token, make anyone a stranger. The page stays public."""
    async with mounted() as host:
        assert (await host.get(path))[0] == 200
        for sign in ("x_forwarded_for", "forwarded", "via", "x_real_ip"):
            assert (await host.get(path, **{sign: "127.0.0.1"}))[0] == 401
        assert (await host.get(path, authorization="Bearer dod_wrong"))[0] == 401
    async with mounted(needs_token=True) as host:
        assert (await host.get(path))[0] == 401
        assert (await host.get("/agent/"))[0] == 200


async def test_a_token_opens_it() -> None:
    """With its scopes, as for a gateway."""
    async with open_test_app() as app, host_of(app, needs_token=True) as host:
        _, text = await app.live.runtime.tokens.create("ada", ["read"], by="local")
        header = {"authorization": f"Bearer {text}"}
        assert (await host.get("/agent/api/projects", **header))[0] == 200
        assert (await host.send("POST", "/agent/api/oracle", ASK, **header))[0] == 403


async def test_other_sites_and_hosts_are_refused() -> None:
    """Unless the host names them; those then need a token."""
    async with mounted() as host:
        path = "/agent/api/projects"
        assert (await host.get(path, host="evil.example"))[0] == 403
        assert (await host.get(path, origin="https://evil.example"))[0] == 403
        assert (await host.get(path, sec_fetch_site="cross-site"))[0] == 403
        assert (await host.get("/hello", host="evil.example"))[0] == 200
    async with mounted(hosts=["my.example"]) as host:
        assert (await host.get(path, host="my.example"))[0] == 401
        assert (await host.get("/agent/", host="my.example"))[0] == 200
    with pytest.raises(ConfigError):
        dodona.asgi(dodona.open(), hosts=["https://my.example/"])


async def test_a_form_cannot_ask() -> None:
    """A body must be JSON, which no form of another site can send."""
    async with (
        mounted() as host,
        host.client.post(f"{host.url}/agent/api/oracle", data={"question": "Hm?"}) as response,
    ):
        assert response.status == 415


async def test_before_and_after_the_app_is_open_it_answers_503() -> None:
    """Requests and WebSockets; the host lives on."""
    async with open_test_app(["Yes."]) as app:
        pass
    for closed in (app, dodona.open()):
        async with host_of(closed) as host:
            status, body = await host.get("/agent/api/projects")
            assert status == 503
            assert body["error"] == {
                "code": "shutting_down",
                "message": "Dodona is not open.",
                "hint": "The host opens it: `async with app` in its lifespan.",
            }
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                await host.client.ws_connect(f"{host.url}/agent/ws")
            assert refused.value.status == 503
            assert (await host.get("/hello"))[0] == 200


async def test_closing_the_app_ends_its_streams() -> None:
    """The run of a request is released, as by a gateway that stops: `serve` resumes it."""
    slow = Slow()
    async with AsyncExitStack() as stack:
        app = await stack.enter_async_context(
            open_test_app([call("wait_long")], tools=[slow.tool()])
        )
        async with host_of(app) as host:
            url = f"{host.url}/agent/api/oracle/stream"
            async with host.client.post(url, json=ASK) as response:
                await slow.started.wait()
                await stack.aclose()
                chunks = events((await response.read()).decode())
    assert "done" not in [chunk["type"] for chunk in chunks]


async def test_two_apps_in_one_host_share_nothing() -> None:
    """Each below its own prefix, with its own conversations."""
    async with (
        open_test_app(["I am ada."]) as ada,
        open_test_app(["I am bob."]) as bob,
        host_of(ada, "/ada") as first,
        host_of(bob, "/bob") as second,
    ):
        assert (await first.send("POST", "/ada/api/oracle", ASK))[1]["answer"] == "I am ada."
        assert (await second.send("POST", "/bob/api/oracle", ASK))[1]["answer"] == "I am bob."
