"""One connection: frames come in, each is answered, and none of them ends the others.

A request is a task of its own. What it takes in is taken in, also when the client leaves meanwhile;
what only waits for a run is ended then, and the run goes on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress

from starlette.requests import HTTPConnection
from starlette.types import Message, Receive

import dodona
from dodona.core.errors import (
    AccessDenied,
    BadRequest,
    DodonaError,
    NotFound,
    Unauthorized,
    did_you_mean,
)
from dodona.gateway.errors import TooManyRequests
from dodona.gateway.http.responses import fault
from dodona.gateway.security.auth import audit_refusal, authenticate
from dodona.gateway.state import GatewayState
from dodona.gateway.websocket import frame
from dodona.gateway.websocket.call import Call, Method, SessionLocks
from dodona.gateway.websocket.frame import Id, Request
from dodona.gateway.websocket.handshake import Identity, is_token, visitor_of_token
from dodona.gateway.websocket.parameter import read
from dodona.gateway.websocket.protocol import FOLLOWED, REQUESTS, UNKNOWN_CALLER
from dodona.gateway.websocket.writer import Disconnected, FrameWriter

_log = logging.getLogger(__name__)


class Connection:
    """From its acceptance to its end."""

    __slots__ = (
        *("_answering", "_has_left", "_ids", "_lingering", "_methods", "_token"),
        *("caller", "gate", "line", "turns"),
    )

    def __init__(
        self,
        gate: GatewayState,
        visitor: Identity,
        *,
        methods: Mapping[str, Method],
        turns: SessionLocks,
        line: FrameWriter,
    ) -> None:
        self.gate = gate
        self.caller = visitor.caller
        self.turns = turns
        self.line = line
        self._token = visitor.token
        self._methods = methods
        self._ids: set[Id] = set()
        self._answering: set[asyncio.Task[None]] = set()
        self._lingering: set[asyncio.Task[None]] = set()
        self._has_left = False

    async def serve(self, door: HTTPConnection, receive: Receive) -> None:
        """Until the client leaves, or is sent away."""
        try:
            await self._greet()
            message = await receive()
            if await self._become(door, message):
                message = await receive()
            while message["type"] != "websocket.disconnect":
                await self._take(door, message)
                message = await receive()
        except Disconnected:
            pass  # nobody is there to be told
        finally:
            await self._end()

    async def _greet(self) -> None:
        hello = {
            "event": "hello",
            "version": dodona.__version__,
            "user": self.caller.user_id,
            "scopes": sorted(self.caller.scopes),
            "methods": [*self._methods],
        }
        await self.line.send(hello)

    async def _become(self, door: HTTPConnection, message: Message) -> bool:
        """A client that was let in without a token may say who it is, in its first frame."""
        with suppress(DodonaError):
            document = frame.parse(message, self.gate.rules.largest_head)
            if is_token(document):
                visitor = await visitor_of_token(self.gate, door, document["token"])
                if visitor is None:
                    await self.line.close(UNKNOWN_CALLER, "The token is not known.")
                else:
                    self.caller, self._token = visitor.caller, visitor.token
                    await self._greet()
                return True
        return False

    async def _take(self, door: HTTPConnection, message: Message) -> None:
        id_ = None
        try:
            if self._token is not None:
                # As for each request over HTTP: it may have been revoked, or used too often.
                self.caller = await authenticate(self.gate, door, self._token)
            document = frame.parse(message, self.gate.rules.largest_body)
            id_ = self._free(frame.id_of(document))
            self._begin(door, frame.read_request(document))
        except Unauthorized as error:
            await self.line.close(UNKNOWN_CALLER, error.message)
        except DodonaError as error:
            await self.line.send(frame.refusal(id_, error, self.gate.redactor))

    def _free(self, id_: Id | None) -> Id | None:
        if id_ in self._ids:
            # Not told under that id: it would be taken for the answer to the first one.
            raise BadRequest(
                f"id {id_!r:.80} is that of a request that is not answered yet.",
                hint="Give each request an id of its own.",
            )
        return id_

    def _begin(self, door: HTTPConnection, request: Request) -> None:
        method = self._methods.get(request.method)
        if method is None:
            raise NotFound(
                f"there is no method {request.method!r:.80}.",
                hint=did_you_mean(request.method, self._methods) or "The hello names them.",
            )
        try:
            self._check(method)
        except (AccessDenied, TooManyRequests) as error:
            audit_refusal(self.gate, door.scope, error, self.caller)
            raise
        call = Call(self, request.id, read(method.fields, request.params))
        self._ids.add(call.id)
        task = asyncio.create_task(self._answer(method, call))
        self._answering.add(task)
        task.add_done_callback(self._ended)

    def _check(self, method: Method) -> None:
        self.caller.require_scope(method.scope)
        if len(self._answering) >= REQUESTS:
            raise TooManyRequests(
                f"{REQUESTS} requests of this connection are not answered yet.",
                hint="Wait for some of the answers.",
            )

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._answering.discard(task)
        self._lingering.discard(task)

    async def _answer(self, method: Method, call: Call) -> None:
        with suppress(Disconnected):  # nobody is there to be told
            try:
                await call.answer(await method.handle(call))
            except DodonaError as error:
                await call.refuse(error)
            except Disconnected:
                raise
            except Exception:  # noqa: BLE001 - a boundary: a request
                _log.exception("%s failed", method.name)
                await call.refuse(fault())
            finally:
                self._ids.discard(call.id)

    # -- what calls ask of their connection ---------------------------------------------------

    def check_capacity(self) -> None:
        if len(self._lingering) >= FOLLOWED:
            raise TooManyRequests(
                f"this connection waits for {FOLLOWED:,} runs.",
                hint="Wait for some of them to end, or open another connection.",
            )

    def detach(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        if self._has_left:
            raise Disconnected
        self._answering.discard(task)
        self._lingering.add(task)

    def release(self, call: Call) -> None:
        self._ids.discard(call.id)

    async def _end(self) -> None:
        """Let what is being taken in be taken in; end what only waits."""
        self._has_left = True
        for task in self._lingering:
            task.cancel()
        tasks = {*self._answering, *self._lingering}
        if tasks:
            await asyncio.gather(*tasks, return_exceptions=True)
