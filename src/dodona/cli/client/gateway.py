"""Asking a gateway that runs already. A connection that breaks is taken up where it broke."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from time import monotonic
from typing import Any, Final
from urllib.parse import quote

import aiohttp

from dodona.agent.question import Question
from dodona.cli.client.gateway_file import Announcement
from dodona.cli.client.in_process import ChunkJson
from dodona.cli.terminal.output import print_note
from dodona.core.errors import DodonaError, from_json
from dodona.models.sse import SseParser

RECONNECT_TIMEOUT: Final = 30.0  # seconds in which a gateway that is gone may come back
STREAM_READ_TIMEOUT: Final = (
    60.0  # seconds after which a stream is dead: it gives signs of life more often
)
REQUEST_TIMEOUT: Final = 10.0  # seconds for what is answered at once
INITIAL_BACKOFF: Final = 0.1
RUN_HEADER: Final = "dodona-run"

_FINAL_TYPES: Final = ("done", "error")
_CONNECTION_ERRORS: Final = (aiohttp.ClientError, TimeoutError, ConnectionError)


@asynccontextmanager
async def gateway_client(
    announcement: Announcement, home: Path, *, reconnect_timeout: float = RECONNECT_TIMEOUT
) -> AsyncGenerator[GatewayClient]:
    # Nothing is kept open: a request on a connection that just died might be sent twice.
    connector = aiohttp.TCPConnector(force_close=True)
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=REQUEST_TIMEOUT)
    async with aiohttp.ClientSession(
        connector=connector, cookie_jar=aiohttp.DummyCookieJar(), timeout=timeout
    ) as session:
        yield GatewayClient(session, announcement, home, reconnect_timeout=reconnect_timeout)


class GatewayClient:
    """A Client of a gateway on this machine."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        announcement: Announcement,
        home: Path,
        *,
        reconnect_timeout: float,
    ) -> None:
        self._session = session
        self._announcement = announcement
        self._home = home
        self._reconnect_timeout = reconnect_timeout
        self._run_id: int | None = None
        self._last_seq = 0

    async def is_reachable(self) -> bool:
        """Does a gateway answer where one was announced?"""
        try:
            async with (
                asyncio.timeout(REQUEST_TIMEOUT),
                self._session.get(self._url("/healthz")) as got,
            ):
                return got.status == 200 and isinstance(await got.json(), dict)
        except (*_CONNECTION_ERRORS, ValueError):
            return False

    async def get(self, path: str) -> Any:
        """A document of the gateway's; raises what it says instead."""
        try:
            async with (
                asyncio.timeout(REQUEST_TIMEOUT),
                self._session.get(self._url(path)) as response,
            ):
                await _raise_for_status(response)
                return await response.json()
        except (*_CONNECTION_ERRORS, ValueError) as error:
            raise self._lost_error() from error

    async def stream(self, question: Question) -> AsyncGenerator[ChunkJson]:
        self._run_id, self._last_seq = None, 0
        try:
            async with self._post(
                "/api/oracle/stream", asdict(question), STREAM_READ_TIMEOUT
            ) as response:
                self._run_id = int(response.headers[RUN_HEADER])
                async for chunk in self._read_chunks(response):
                    yield chunk
                    if chunk["type"] in _FINAL_TYPES:
                        return
        except _CONNECTION_ERRORS:
            pass  # told below, or mended
        if self._run_id is None:
            raise self._lost_error()
        async for chunk in self._resume_stream():
            yield chunk

    async def answer(self, question: Question) -> Mapping[str, Any]:
        self._run_id = None
        try:
            async with self._post("/api/oracle", asdict(question), None) as response:
                return await response.json()
        except _CONNECTION_ERRORS as error:
            raise self._lost_error() from error

    async def decide(self, run_id: int, call: str, *, approved: bool) -> None:
        path = f"/api/runs/{run_id}/approvals/{quote(call, safe='')}"
        try:
            async with self._post(path, {"approved": approved}, REQUEST_TIMEOUT):
                pass
        except _CONNECTION_ERRORS as error:
            raise self._lost_error() from error

    async def cancel(self, question: Question) -> None:
        try:
            run_id = self._run_id or await self._find_run(question)
            if run_id is not None:
                async with self._post("/api/oracle/cancel", {"run_id": run_id}, REQUEST_TIMEOUT):
                    pass
        except _CONNECTION_ERRORS as error:
            raise self._lost_error() from error

    async def _resume_stream(self) -> AsyncGenerator[ChunkJson]:
        """What comes after the chunks that were seen, from whoever is there by now."""
        print_note("The connection to the gateway broke; waiting for it to come back.")
        pause, deadline = INITIAL_BACKOFF, monotonic() + self._reconnect_timeout
        while True:
            try:
                async with self._open_events() as response:
                    async for chunk in self._read_chunks(response):
                        pause, deadline = INITIAL_BACKOFF, monotonic() + self._reconnect_timeout
                        yield chunk
                        if chunk["type"] in _FINAL_TYPES:
                            return
            except _CONNECTION_ERRORS as error:
                if monotonic() > deadline:
                    raise self._lost_error() from error
            if monotonic() > deadline:
                raise self._lost_error()
            await asyncio.sleep(pause)
            pause = min(2 * pause, 2.0)
            # It may have come back at another port.
            self._announcement = Announcement.read(self._home) or self._announcement

    async def _read_chunks(
        self, response: aiohttp.ClientResponse
    ) -> AsyncGenerator[dict[str, Any]]:
        parser = SseParser()
        async for data in response.content.iter_any():
            for event in parser.feed(data):
                chunk: dict[str, Any] = json.loads(event)
                if chunk["seq"] > self._last_seq:
                    self._last_seq = chunk["seq"]
                    yield chunk

    async def _find_run(self, question: Question) -> int | None:
        """The newest run that answers this, if it has not told us its number yet."""
        where = self._url("/api/runs")
        wanted = {"project_id": question.project_id, "limit": "20"}
        async with (
            asyncio.timeout(REQUEST_TIMEOUT),
            self._session.get(where, params=wanted) as response,
        ):
            await _raise_for_status(response)
            found = await response.json()
        is_open = ("queued", "running", "waiting")
        runs = [run for run in found["runs"] if run["status"] in is_open]
        return next(
            (run["id"] for run in runs if _is_same_question(question, run["question"])), None
        )

    @asynccontextmanager
    async def _post(
        self, path: str, body: Mapping[str, Any], read_timeout: float | None
    ) -> AsyncGenerator[aiohttp.ClientResponse]:
        said = {name: value for name, value in body.items() if value is not None}
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=REQUEST_TIMEOUT, sock_read=read_timeout
        )
        async with self._session.post(self._url(path), json=said, timeout=timeout) as response:
            await _raise_for_status(response)
            yield response

    @asynccontextmanager
    async def _open_events(self) -> AsyncGenerator[aiohttp.ClientResponse]:
        async with self._session.get(
            self._url(f"/api/runs/{self._run_id}/events"),
            headers={"Last-Event-ID": str(self._last_seq)},
            timeout=aiohttp.ClientTimeout(
                total=None, sock_connect=REQUEST_TIMEOUT, sock_read=STREAM_READ_TIMEOUT
            ),
        ) as response:
            if response.status == 503:
                raise aiohttp.ClientError  # on its way down, or up
            if response.status == 204:
                raise self._lost_error()  # the run is over, though we never saw its end
            await _raise_for_status(response)
            yield response

    def _url(self, path: str) -> str:
        return self._announcement.url.rstrip("/") + path

    def _lost_error(self) -> DodonaError:
        look = "dodona run list" if self._run_id is None else f"dodona run show {self._run_id}"
        return DodonaError(
            f"the gateway at {self._announcement.url} does not answer any more.",
            hint=f"What was asked goes on when it is back. See: {look}",
        )


def _is_same_question(question: Question, listed: str) -> bool:
    """Is it this one that is listed? There, long questions are cut short."""
    return question.question.strip().startswith(listed.strip().removesuffix("…"))


async def _raise_for_status(response: aiohttp.ClientResponse) -> None:
    """Raise what a gateway says instead of an answer."""
    if response.status < 400:
        return
    text = await response.text(errors="replace")
    try:
        told = json.loads(text)["error"]
    except (ValueError, KeyError, TypeError):
        told = {"message": f"the gateway answers {response.status}.", "hint": text[:200]}
    raise from_json(told)
