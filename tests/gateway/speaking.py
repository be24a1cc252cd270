"""A client of `/ws`: what it is told goes where it belongs, to an answer or to a run."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from tests.gateway.plain_agency import LONG

Frame = dict[str, Any]


class Refused(Exception):
    """The error that a request was answered with."""

    def __init__(self, error: Frame) -> None:
        super().__init__(error["message"])
        self.error = error


class Speaker:
    """One connection. `events` are those that came while something else was waited for."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket
        self.hello: Frame = {}
        self.events: list[Frame] = []
        self._ids = itertools.count(1)
        self._answers: dict[Any, Frame] = {}

    async def say(self, frame: Any) -> None:
        await self.socket.send_str(frame if isinstance(frame, str) else json.dumps(frame))

    async def heard(self) -> Frame:
        """The next frame, whatever it is."""
        async with asyncio.timeout(LONG):
            message = await self.socket.receive()
        assert message.type is aiohttp.WSMsgType.TEXT, message
        return json.loads(message.data)

    async def begin(self, method: str, **params: Any) -> int:
        """The id of a request that is on its way."""
        id_ = next(self._ids)
        await self.say({"id": id_, "method": method, "params": params})
        return id_

    async def answer(self, id_: Any) -> Any:
        """The result of a request; its error is raised."""
        while id_ not in self._answers:
            self._keep(await self.heard())
        frame = self._answers.pop(id_)
        if "error" in frame:
            raise Refused(frame["error"])
        return frame["result"]

    async def call(self, method: str, **params: Any) -> Any:
        return await self.answer(await self.begin(method, **params))

    async def send(self, content: str, **more: Any) -> Frame:
        """A message of ours."""
        mine = {"channel": "web", "account": "local"}
        return await self.call("chat.send", **{**mine, **more}, content=content)

    async def event(self) -> Frame:
        """The next event."""
        while not self.events:
            self._keep(await self.heard())
        return self.events.pop(0)

    async def events_of(self, run_id: int) -> list[Frame]:
        """All events of a run, once it has ended; those of others stay."""
        found: list[Frame] = []
        others: list[Frame] = []
        while not (found and found[-1]["event"] in ("done", "error")):
            event = await self.event()
            (found if event["run_id"] == run_id else others).append(event)
        self.events = others + self.events
        return found

    async def closed(self) -> int | None:
        """The code that the connection was closed with; what came before is passed over."""
        async with asyncio.timeout(LONG):
            while (message := await self.socket.receive()).type is aiohttp.WSMsgType.TEXT:
                pass
        return message.data if message.type is aiohttp.WSMsgType.CLOSE else None

    def _keep(self, frame: Frame) -> None:
        if "event" in frame:
            self.events.append(frame)
        else:
            self._answers[frame["id"]] = frame


@asynccontextmanager
async def speaking(client: aiohttp.ClientSession, url: str, **more: Any) -> AsyncGenerator[Speaker]:
    async with client.ws_connect(f"{url}/ws", max_msg_size=64 << 20, **more) as socket:
        speaker = Speaker(socket)
        speaker.hello = await speaker.heard()
        yield speaker
