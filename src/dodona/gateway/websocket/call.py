"""One request, on its way to be answered."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias
from weakref import WeakValueDictionary

from dodona.agent.api import AgentApi
from dodona.core import chunks
from dodona.core.chunks import StreamChunk
from dodona.core.errors import DodonaError
from dodona.gateway.security.caller import Caller
from dodona.gateway.state import GatewayState
from dodona.gateway.websocket.frame import RequestId, error_frame
from dodona.gateway.websocket.parameter import MethodParameter
from dodona.gateway.websocket.writer import FrameWriter


class SessionLocks:
    """A lock for each session in which something is being taken in; the others need none."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def lock_for(self, session_key: str) -> asyncio.Lock:
        """To be held while a message is taken in. Who asks first, has it first."""
        lock = self._locks.get(session_key)
        if lock is None:
            lock = self._locks[session_key] = asyncio.Lock()
        return lock


class Host(Protocol):
    """The connection, as its calls see it."""

    gate: GatewayState
    caller: Caller
    turns: SessionLocks
    line: FrameWriter

    def check_capacity(self) -> None: ...

    def detach(self) -> None: ...

    def release(self, call: Call) -> None: ...


class Call:
    """Answered once, by a result or an error. What is followed goes on after that."""

    __slots__ = ("_host", "caller", "id", "is_answered", "params")

    def __init__(self, host: Host, id_: RequestId, params: Mapping[str, Any]) -> None:
        self._host = host
        self.id = id_
        self.caller = host.caller
        self.params = params
        self.is_answered = False

    @property
    def state(self) -> GatewayState:
        return self._host.gate

    @property
    def api(self) -> AgentApi:
        return self._host.gate.api

    @property
    def user_id(self) -> str:
        return self.caller.user_id

    @property
    def session_locks(self) -> SessionLocks:
        return self._host.turns

    def check_capacity(self) -> None:
        """Refuse to wait for one run more than a connection may wait for."""
        self._host.check_capacity()

    def detach(self) -> None:
        """From here on it only waits: when the client goes away, it is ended."""
        self._host.detach()

    async def send_result(self, result: Any) -> None:
        await self._send_once({"id": self.id, "result": result})

    async def send_error(self, error: DodonaError) -> None:
        await self._send_once(error_frame(self.id, error, self.state.redactor))

    async def stream_run(self, run_id: int, session_key: str | None, *, after_seq: int = 0) -> None:
        """Tell what comes of a run, until it ends."""
        seen = after_seq
        batches = self.api.oracle.stream_chunks(self.user_id, run_id, after_seq=after_seq)
        try:
            async with aclosing(batches):
                async for batch in batches:
                    for chunk in batch:
                        await self._host.line.send_chunk(chunk, session_key)
                        seen = chunk.seq
        except DodonaError as error:
            # The run goes on: only what comes of it cannot be told here.
            lost = StreamChunk(run_id, seen, {**chunks.error(error), "is_lost": True})
            await self._host.line.send_chunk(lost, session_key)

    async def _send_once(self, frame: dict[str, Any]) -> None:
        if not self.is_answered:
            self.is_answered = True
            self._host.release(self)
            await self._host.line.send(frame)


Handler: TypeAlias = Callable[[Call], Awaitable[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """What `handle` returns is the result, unless it has answered already."""

    name: str
    description: str
    result: str
    handle: Handler
    scope: str = "read"
    parameters: tuple[MethodParameter, ...] = ()
