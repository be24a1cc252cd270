"""A client that asks a question and wants the whole answer, however often the gateway dies."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp

from crashing.gateway import Cluster
from crashing.plans import Plan

PATIENCE: Final = 120.0  # seconds for an answer when there are no kills
_GONE = (aiohttp.ClientError, ConnectionError, TimeoutError)


@dataclass(slots=True)
class Heard:
    """The chunks of a run that a client has, by the rules of the stream."""

    last: int = 0
    chunks: dict[int, dict[str, Any]] = field(default_factory=dict)
    restarts: int = 0
    ended: str = ""
    breaches: list[str] = field(default_factory=list)

    def take(self, chunk: dict[str, Any]) -> None:
        seq = chunk["seq"]
        if seq <= self.last:
            self.breaches.append(f"chunk {seq} came after {self.last}")
        if self.ended:
            self.breaches.append(f"{chunk['type']} came after the {self.ended}")
        self.last = max(self.last, seq)
        if chunk["type"] == "restart":
            self.restarts += 1
            kept = chunk["discard_after"]
            self.chunks = {at: each for at, each in self.chunks.items() if at <= kept}
        elif chunk["type"] in ("done", "error"):
            self.ended = chunk["type"]
        self.chunks[seq] = chunk

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [self.chunks[at] for at in sorted(self.chunks) if self.chunks[at]["type"] == kind]

    @property
    def text(self) -> str:
        return "".join(chunk["content"] for chunk in self.of("content"))


@dataclass(slots=True)
class Asked:
    """A question, and the history of its client."""

    plan: Plan
    project: str
    run_id: int | None = None
    sent: bool = False  # possibly accepted without a response
    reconnects: int = 0
    heard: Heard = field(default_factory=Heard)
    breaches: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Client:
    """Follows a run across all interruptions."""

    cluster: Cluster
    http: aiohttp.ClientSession
    on_chunk: Callable[[], None] = lambda: None

    async def converse(self, asked: Asked) -> None:
        """Ask, and listen until the last chunk."""
        while not asked.heard.ended:
            url = await self.cluster.url(asked.plan.number + asked.reconnects)
            try:
                if asked.run_id is None and not asked.sent:
                    await self._ask(url, asked)
                elif asked.run_id is None:
                    await self._look_for(url, asked)
                else:
                    asked.reconnects += 1
                    await self._follow(url, asked)
            except _GONE:
                await asyncio.sleep(0.02)  # the next gateway is not listening yet

    async def _ask(self, url: str, asked: Asked) -> None:
        body = {"question": asked.plan.question, "project_id": asked.project}
        asked.sent = True
        async with self.http.post(f"{url}/api/oracle/stream", json=body) as response:
            await self._check(response, asked)
            asked.run_id = int(response.headers["dodona-run"])
            await self._listen(response, asked)

    async def _look_for(self, url: str, asked: Asked) -> None:
        """After no response: find out whether the question was accepted; if not, ask again."""
        address = f"{url}/api/runs?project_id={asked.project}&limit=200"
        async with self.http.get(address) as response:
            await self._check(response, asked)
            for run in _listed(await response.json()):
                if run["question"] == asked.plan.question:
                    asked.run_id = run["id"]
                    return
        asked.sent = False

    async def _follow(self, url: str, asked: Asked) -> None:
        headers = {"Last-Event-ID": str(asked.heard.last)}
        address = f"{url}/api/runs/{asked.run_id}/events"
        async with self.http.get(address, headers=headers) as response:
            await self._check(response, asked)
            if response.status == 204:
                asked.breaches.append("the stream is over, and there was no last chunk")
                asked.heard.ended = "nothing"
            await self._listen(response, asked)

    async def _check(self, response: aiohttp.ClientResponse, asked: Asked) -> None:
        if response.status not in (200, 204, 503):
            text = (await response.text())[:300]
            asked.breaches.append(f"{response.method} {response.url}: {response.status} {text}")
        response.raise_for_status()

    async def _listen(self, response: aiohttp.ClientResponse, asked: Asked) -> None:
        async for chunk in events(response.content):
            asked.heard.take(chunk)
            self.on_chunk()

    async def replay(self, run_id: int) -> Heard:
        """Return the whole stream of a run, as a late client receives it."""
        heard = Heard()
        async with self.http.get(
            f"{await self.cluster.url()}/api/runs/{run_id}/events"
        ) as response:
            response.raise_for_status()
            async for chunk in events(response.content):
                heard.take(chunk)
        return heard

    async def show(self, run_id: int) -> dict[str, Any]:
        async with self.http.get(f"{await self.cluster.url()}/api/runs/{run_id}") as response:
            response.raise_for_status()
            return await response.json()

    async def make_project(self, name: str) -> None:
        project = {"id": name, "vault_path": str(self.cluster.vault)}
        address = f"{await self.cluster.url()}/api/projects"
        async with self.http.post(address, json=project) as response:
            response.raise_for_status()


def _listed(found: Any) -> list[dict[str, Any]]:
    return found["runs"] if isinstance(found, dict) else found


async def events(content: aiohttp.StreamReader) -> AsyncIterator[dict[str, Any]]:
    """Yield the chunks of a stream, without an incomplete last event."""
    number = ""
    data = ""
    async for raw in content:
        line = raw.decode()
        if not line.endswith("\n"):
            return
        if line == "\n":
            if data:
                chunk = json.loads(data)
                assert str(chunk["seq"]) == number, f"id {number} for chunk {chunk['seq']}"
                yield chunk
            number = data = ""
        elif line.startswith("id: "):
            number = line[4:].strip()
        elif line.startswith("data: "):
            data = line[6:]
