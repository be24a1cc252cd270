"""A gateway on loopback, and how to talk to it: with a client, or byte by byte."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from starlette.applications import Starlette

from dodona.gateway.app import make_app
from dodona.gateway.server import open_listener, serve
from dodona.gateway.settings import GatewaySettings
from dodona.gateway.state import GatewayState
from dodona.net.redactor import Redactor
from tests.gateway.plain_agency import LONG, PlainAgency, PlainRun, ended, until

JSON = {"content-type": "application/json"}


class Gateway:
    """A running one, with the agency behind it."""

    def __init__(self, url: str, agency: PlainAgency, client: aiohttp.ClientSession) -> None:
        self.url = url
        self.port = int(url.rpartition(":")[2])
        self.agency = agency
        self.client = client

    @property
    def run(self) -> PlainRun:
        """The newest."""
        return self.agency.oracle.runs[max(self.agency.oracle.runs)]

    async def asked(self, number: int = 1) -> PlainRun:
        """The run of a question on its way."""
        await until(lambda: number in self.agency.oracle.runs, f"question {number} came")
        return self.agency.oracle.runs[number]

    async def call(
        self, method: str, path: str, body: Any = None, **headers: str
    ) -> tuple[int, Any, Mapping[str, str]]:
        """A whole exchange: status, document, headers."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        async with self.client.request(
            method, self.url + path, json=body, headers=named
        ) as response:
            text = await response.text()
            return response.status, json.loads(text) if text else None, response.headers

    async def raw(self, sent: bytes, *, then_close: bool = False) -> bytes:
        """All that comes back for these bytes, until the other side closes."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(sent.replace(b"PORT", str(self.port).encode()))
            if then_close:
                writer.write_eof()
            async with asyncio.timeout(LONG):
                return await read_all(reader)
        finally:
            writer.close()


async def read_all(reader: asyncio.StreamReader) -> bytes:
    """Until the end, or until the connection is reset."""
    found = b""
    try:
        while piece := await reader.read(65536):
            found += piece
    except ConnectionError:
        pass
    return found


async def ready() -> dict[str, Any]:
    return {"store": "plain"}


async def nothing() -> None:
    pass


async def _served(app: Starlette, address: asyncio.Future[str]) -> None:
    with open_listener("127.0.0.1", 0) as listener:
        await serve(app, listener, on_started=address.set_result, finish_runs=nothing)


@asynccontextmanager
async def gateway_up(
    agency: PlainAgency | None = None,
    *,
    rules: GatewaySettings | None = None,
    ready: Callable[[], Awaitable[Mapping[str, Any]]] = ready,
    redactor: Redactor | None = None,
    **beside: Any,
) -> AsyncGenerator[Gateway]:
    """Serve on any port until the block ends."""
    agency = agency or PlainAgency()
    address = asyncio.get_running_loop().create_future()
    app = make_app(
        GatewayState(
            api=agency,
            settings=rules or GatewaySettings(),
            check_readiness=ready,
            redactor=redactor,
            **beside,
        )
    )
    task = asyncio.create_task(_served(app, address))
    async with ended(task), aiohttp.ClientSession() as client:
        await asyncio.wait({task, address}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
        yield Gateway(address.result(), agency, client)


def events(text: str) -> list[dict[str, Any]]:
    """The documents in a stream of events."""
    return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")]


class Following:
    """Reads a stream piece by piece."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.response = response
        self.text = ""

    async def until(self, wanted: str, count: int = 1) -> str:
        async with asyncio.timeout(LONG):
            while self.text.count(wanted) < count:
                piece = await self.response.content.readany()
                assert piece, f"the stream ended before {wanted!r}: {self.text!r}"
                self.text += piece.decode()
        return self.text

    async def rest(self) -> str:
        async with asyncio.timeout(LONG):
            self.text += (await self.response.content.read()).decode()
        return self.text
