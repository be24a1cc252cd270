"""A method call: one request on a connection and its response."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from dodona.agent.api import AgentApi
from dodona.core.chunks import ErrorChunk, StreamChunk
from dodona.core.errors import DodonaError, to_body
from dodona.gateway.state import GatewayState
from dodona.gateway.websocket.events import to_event
from dodona.gateway.websocket.frame import RequestId, error_frame

if TYPE_CHECKING:
    from dodona.gateway.websocket.connection import Connection


class SessionLocks:
    """A lock per session that is receiving a message; idle sessions have none."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()

    def lock_for(self, user_id: str, session_key: str) -> asyncio.Lock:
        """Return the lock to hold while a message is submitted. It keeps messages in order."""
        session = (user_id, session_key)
        lock = self._locks.get(session)
        if lock is None:
            lock = self._locks[session] = asyncio.Lock()
        return lock


class Call:
    """Sends exactly one response, a result or an error. Events may follow it."""

    __slots__ = ("caller", "connection", "id", "is_answered")

    def __init__(self, connection: Connection, id_: RequestId) -> None:
        self.connection = connection
        self.id = id_
        self.caller = connection.caller
        self.is_answered = False

    @property
    def state(self) -> GatewayState:
        return self.connection.state

    @property
    def api(self) -> AgentApi:
        return self.connection.state.api

    @property
    def user_id(self) -> str:
        return self.caller.user_id

    async def send_result(self, result: Any) -> None:
        await self._send_once({"id": self.id, "result": result})

    async def send_error(self, error: DodonaError) -> None:
        await self._send_once(error_frame(self.id, error, self.state.redactor))

    async def stream_run(self, run_id: int, session_key: str | None, *, after_seq: int = 0) -> None:
        """Send the events of a run until it ends."""
        last_seq = after_seq
        followed = self.connection.followed_runs
        followed.add(run_id)
        batches = self.api.oracle.stream_chunks(self.user_id, run_id, after_seq=after_seq)
        try:
            async with aclosing(batches):
                async for batch in batches:
                    for chunk in batch:
                        await self.connection.writer.send_chunk(chunk, session_key)
                        last_seq = chunk.seq
        except DodonaError as error:
            # The run continues; only its events cannot be sent here.
            chunk = StreamChunk(run_id, last_seq, ErrorChunk(to_body(error)))
            event = to_event(chunk, session_key)
            event["data"]["is_lost"] = True
            await self.connection.writer.send(event)
        finally:
            followed.discard(run_id)

    async def _send_once(self, frame: dict[str, Any]) -> None:
        if not self.is_answered:
            self.is_answered = True
            self.connection.free_request_id(self)
            await self.connection.writer.send(frame)
