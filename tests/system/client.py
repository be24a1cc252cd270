"""A client of a gateway, for one test: its project, and its tag in every question."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from tests.system.dodona_up import Up
from tests.system.waiting import LIMIT, until_found

Chunk = dict[str, Any]


@dataclass(frozen=True)
class Answered:
    """An answer that came in one piece."""

    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)

    @property
    def error(self) -> dict[str, Any]:
        return self.json["error"]


class Chunks:
    """A stream of events as it comes; `seen` are those that came so far."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.response = response
        self.seen: list[Chunk] = []

    async def next(self) -> Chunk | None:
        """The next one; None at the end of the stream."""
        fields: dict[str, str] = {}
        async with asyncio.timeout(LIMIT):
            async for raw in self.response.content:
                line = raw.decode().rstrip("\r\n")
                if not line and "data" in fields:
                    return self._taken(fields)
                name, _, value = line.partition(":")
                if name in ("id", "data", "event"):
                    fields[name] = value.removeprefix(" ")
        return None

    def _taken(self, fields: Mapping[str, str]) -> Chunk:
        chunk: Chunk = json.loads(fields["data"])
        if "seq" in chunk:
            assert fields["id"] == str(chunk["seq"]), "the id of an event is its seq"
        self.seen.append(chunk)
        return chunk

    async def until(self, type_: str, holds: Callable[[Chunk], object] = bool) -> Chunk:
        """The next one of this type."""
        while (chunk := await self.next()) is not None:
            if chunk["type"] == type_ and holds(chunk):
                return chunk
        raise AssertionError(f"the stream ended without {type_}: {types(self.seen)}")

    async def rest(self) -> list[Chunk]:
        """All of them, once the stream has ended."""
        while await self.next() is not None:
            pass
        return self.seen

    @property
    def run_id(self) -> int:
        """The run of a question that was asked here."""
        return int(self.response.headers["Dodona-Run"])


class Client:
    """Asks in one project, also of a gateway that was started anew.

    What it changes for the user it puts back.
    """

    def __init__(self, session: aiohttp.ClientSession, up: Up, *, project: str, tag: str) -> None:
        self.session = session
        self.up = up
        self.project = project
        self.tag = tag
        self._settings: dict[str, Any] | None = None  # as they were before this test

    @property
    def url(self) -> str:
        return self.up.url

    def in_project(self, project: str) -> Client:
        """The same in another project."""
        return Client(self.session, self.up, project=project, tag=self.tag)

    async def make_project(self, vault: Path | None = None) -> None:
        body = {"id": self.project} | ({"vault_path": str(vault)} if vault else {})
        made = await self.send("POST", "/api/projects", body)
        assert made.status == 201, made.text

    async def send(self, method: str, path: str, body: object = None, **more: Any) -> Answered:
        """Any request; a body goes as JSON."""
        if body is not None:
            more["json"] = body
        async with asyncio.timeout(LIMIT):
            async with self.session.request(method, self.url + path, **more) as response:
                return Answered(response.status, response.headers, await response.text())

    async def get(self, path: str, **more: Any) -> Any:
        answered = await self.send("GET", path, **more)
        assert answered.status == 200, answered.text
        return answered.json

    async def search_waits(self) -> bool:
        """Does a search of the notes wait, because a change is known and not indexed yet?"""
        try:
            async with asyncio.timeout(0.3):
                await self.get(f"/api/vault/search?query=oak&project_id={self.project}")
        except TimeoutError:
            return True
        return False

    def question(self, text: str, **more: Any) -> dict[str, Any]:
        return {"question": f"{text} {self.tag}", "project_id": self.project, **more}

    async def ask(self, text: str, **more: Any) -> dict[str, Any]:
        """The whole answer."""
        answered = await self.try_to_ask(text, **more)
        assert answered.status == 200, answered.text
        return answered.json

    async def try_to_ask(self, text: str, **more: Any) -> Answered:
        return await self.send("POST", "/api/oracle", self.question(text, **more))

    @asynccontextmanager
    async def stream(self, text: str, **more: Any) -> AsyncIterator[Chunks]:
        async with self.session.post(
            f"{self.url}/api/oracle/stream", json=self.question(text, **more)
        ) as response:
            assert response.status == 200, await response.text()
            assert response.content_type == "text/event-stream"
            yield Chunks(response)

    async def streamed(self, text: str, **more: Any) -> list[Chunk]:
        """All chunks of an answer."""
        async with self.stream(text, **more) as chunks:
            return await chunks.rest()

    async def begin(self, text: str, **more: Any) -> int:
        """The id of a run that goes on without us."""
        async with self.stream(text, **more) as chunks:
            return chunks.run_id

    @asynccontextmanager
    async def follow(self, run_id: int, after: int | None = None) -> AsyncIterator[Chunks]:
        """The events of a run, from `Last-Event-ID` on."""
        headers = {} if after is None else {"Last-Event-ID": str(after)}
        async with self.session.get(
            f"{self.url}/api/runs/{run_id}/events", headers=headers
        ) as response:
            assert response.status == 200, await response.text()
            yield Chunks(response)

    async def followed(self, run_id: int, after: int | None = None) -> list[Chunk]:
        async with self.follow(run_id, after) as chunks:
            return await chunks.rest()

    @asynccontextmanager
    async def events(self, *types: str) -> AsyncIterator[Chunks]:
        """What happens from now on."""
        params = {"types": ",".join(types)} if types else {}
        async with self.session.get(f"{self.url}/api/events", params=params) as response:
            assert response.status == 200, await response.text()
            yield Chunks(response)

    async def run(self, run_id: int) -> dict[str, Any]:
        return await self.get(f"/api/runs/{run_id}")

    async def runs(self) -> list[dict[str, Any]]:
        """Those of this project, the newest first."""
        listed = await self.get("/api/runs", params={"project_id": self.project})
        return listed["runs"] if isinstance(listed, dict) else listed

    async def ended(self, run_id: int) -> dict[str, Any]:
        """The run, once it has."""

        async def find() -> dict[str, Any] | None:
            run = await self.run(run_id)
            return run if run["status"] in ("succeeded", "failed", "cancelled") else None

        return await until_found(find, f"the end of run {run_id}")  # type: ignore[return-value]

    async def context(self) -> dict[str, Any]:
        return await self.get("/api/oracle/context", params={"project_id": self.project})

    async def cancel(self, **which: Any) -> Answered:
        return await self.send("POST", "/api/oracle/cancel", which)

    async def set(self, **values: Any) -> None:
        """Change settings of the user until the end of the test."""
        if self._settings is None:
            self._settings = await self.get("/api/settings")
        answered = await self.send("PATCH", "/api/settings", values)
        assert answered.status == 200, answered.text

    async def clean_up(self) -> None:
        await self.cancel(project_id=self.project)
        if self._settings is not None:
            await self.send("PATCH", "/api/settings", self._settings)


def types(chunks: Iterable[Chunk]) -> list[str]:
    return [chunk["type"] for chunk in chunks]


def of_type(chunks: Iterable[Chunk], type_: str) -> list[Chunk]:
    return [chunk for chunk in chunks if chunk["type"] == type_]


def notices(chunks: Iterable[Chunk], system_type: str) -> list[Chunk]:
    """The system chunks of a kind."""
    return [each for each in of_type(chunks, "system") if each["system_type"] == system_type]


def kept(chunks: Iterable[Chunk]) -> list[Chunk]:
    """What a client shows at the end: a restart takes back what came after its place."""
    shown: list[Chunk] = []
    for chunk in chunks:
        if chunk["type"] == "restart":
            shown = [each for each in shown if each["seq"] <= chunk["discard_after"]]
        else:
            shown.append(chunk)
    return shown


def text_of(chunks: Iterable[Chunk]) -> str:
    """The answer as a client shows it."""
    return "".join(chunk["content"] for chunk in of_type(kept(chunks), "content"))
