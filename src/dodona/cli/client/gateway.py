"""Client of a running gateway. A broken stream is resumed where it broke."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
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
from dodona.core.json_document import to_builtins
from dodona.models.sse import SseParser

RECONNECT_TIMEOUT: Final = 30.0  # seconds to wait for a gateway to come back
STREAM_READ_TIMEOUT: Final = 60.0  # seconds; the gateway sends keep-alives more often
REQUEST_TIMEOUT: Final = 10.0  # seconds, for requests that are answered immediately
INITIAL_BACKOFF: Final = 0.1
RUN_ID_HEADER: Final = "dodona-run"

_FINAL_TYPES: Final = ("done", "error")
_CONNECTION_ERRORS: Final = (aiohttp.ClientError, TimeoutError, ConnectionError)


@asynccontextmanager
async def gateway_client(
    announcement: Announcement, home: Path, *, reconnect_timeout: float = RECONNECT_TIMEOUT
) -> AsyncGenerator[GatewayClient]:
    """Open a client of the announced gateway."""
    # No keep-alive: a request on a connection that has just died might be sent twice.
    connector = aiohttp.TCPConnector(force_close=True)
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=REQUEST_TIMEOUT)
    async with aiohttp.ClientSession(
        connector=connector, cookie_jar=aiohttp.DummyCookieJar(), timeout=timeout
    ) as session:
        yield GatewayClient(session, announcement, home, reconnect_timeout=reconnect_timeout)


class GatewayClient:
    """A `Client` of a gateway on this machine."""

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
        """Whether the gateway responds at its announced address."""
        try:
            async with (
                asyncio.timeout(REQUEST_TIMEOUT),
                self._session.get(self._url("/healthz")) as response,
            ):
                return response.status == 200 and isinstance(await response.json(), dict)
        except (*_CONNECTION_ERRORS, ValueError):
            return False

    async def get(self, path: str) -> Any:
        """Return the JSON document at a path; raise the gateway's error, if any."""
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
                "/api/oracle/stream", to_builtins(question), STREAM_READ_TIMEOUT
            ) as response:
                self._run_id = int(response.headers[RUN_ID_HEADER])
                async for chunk in self._read_chunks(response):
                    yield chunk
                    if chunk["type"] in _FINAL_TYPES:
                        return
        except _CONNECTION_ERRORS:
            pass  # resumed or reported below
        if self._run_id is None:
            raise self._lost_error()
        async for chunk in self._resume_stream():
            yield chunk

    async def answer(self, question: Question) -> Mapping[str, Any]:
        self._run_id = None
        try:
            async with self._post("/api/oracle", to_builtins(question), None) as response:
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
        """Yield the chunks after the last seen one, reconnecting as needed."""
        print_note("Lost the connection to the gateway. Reconnecting.")
        backoff, deadline = INITIAL_BACKOFF, monotonic() + self._reconnect_timeout
        while True:
            try:
                async with self._open_events() as response:
                    async for chunk in self._read_chunks(response):
                        backoff, deadline = INITIAL_BACKOFF, monotonic() + self._reconnect_timeout
                        yield chunk
                        if chunk["type"] in _FINAL_TYPES:
                            return
            except _CONNECTION_ERRORS as error:
                if monotonic() > deadline:
                    raise self._lost_error() from error
            if monotonic() > deadline:
                raise self._lost_error()
            await asyncio.sleep(backoff)
            backoff = min(2 * backoff, 2.0)
            # It may have restarted on another port.
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
        """Return the newest open run of this question, before its id is known from the stream."""
        url = self._url("/api/runs")
        params = {"project_id": question.project_id, "limit": "20"}
        async with (
            asyncio.timeout(REQUEST_TIMEOUT),
            self._session.get(url, params=params) as response,
        ):
            await _raise_for_status(response)
            document = await response.json()
        open_statuses = ("queued", "running", "waiting")
        runs = [run for run in document["runs"] if run["status"] in open_statuses]
        return next(
            (run["id"] for run in runs if _is_same_question(question, run["question"])), None
        )

    @asynccontextmanager
    async def _post(
        self, path: str, body: Mapping[str, Any], read_timeout: float | None
    ) -> AsyncGenerator[aiohttp.ClientResponse]:
        payload = {name: value for name, value in body.items() if value is not None}
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=REQUEST_TIMEOUT, sock_read=read_timeout
        )
        async with self._session.post(self._url(path), json=payload, timeout=timeout) as response:
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
                raise aiohttp.ClientError  # shutting down or starting
            if response.status == 204:
                raise self._lost_error()  # the run has ended, but we missed its last chunk
            await _raise_for_status(response)
            yield response

    def _url(self, path: str) -> str:
        return self._announcement.url.rstrip("/") + path

    def _lost_error(self) -> DodonaError:
        command = "dodona run list" if self._run_id is None else f"dodona run show {self._run_id}"
        return DodonaError(
            f"the gateway at {self._announcement.url} stopped responding.",
            hint=f"The run continues when the gateway is back. See: {command}",
        )


def _is_same_question(question: Question, listed: str) -> bool:
    """Compare a question with one from the list of runs, where long questions are truncated."""
    return question.question.strip().startswith(listed.strip().removesuffix("…"))


async def _raise_for_status(response: aiohttp.ClientResponse) -> None:
    """Raise the error in a gateway's response."""
    if response.status < 400:
        return
    text = await response.text(errors="replace")
    try:
        error = json.loads(text)["error"]
    except (ValueError, KeyError, TypeError):
        error = {"message": f"the gateway responded with {response.status}.", "hint": text[:200]}
    raise from_json(error)
