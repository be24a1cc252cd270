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
from dodona.gateway.http.responses import unexpected_error
from dodona.gateway.security.auth import audit_rejection, authenticate
from dodona.gateway.state import GatewayState
from dodona.gateway.websocket import frame
from dodona.gateway.websocket.call import Call, Method, SessionLocks
from dodona.gateway.websocket.frame import RequestId, RpcRequest
from dodona.gateway.websocket.handshake import Identity, identity_from_token, is_token_frame
from dodona.gateway.websocket.parameter import read_params
from dodona.gateway.websocket.protocol import (
    MAX_AWAITED_RUNS,
    MAX_REQUESTS,
    UNAUTHORIZED_CLOSE_CODE,
)
from dodona.gateway.websocket.writer import Disconnected, FrameWriter

_log = logging.getLogger(__name__)


class Connection:
    """From its acceptance to its end."""

    __slots__ = (
        *(
            "_active_tasks",
            "_is_disconnected",
            "_open_ids",
            "_detached_tasks",
            "_methods",
            "_token",
        ),
        *("caller", "gate", "line", "turns"),
    )

    def __init__(
        self,
        state: GatewayState,
        identity: Identity,
        *,
        methods: Mapping[str, Method],
        session_locks: SessionLocks,
        writer: FrameWriter,
    ) -> None:
        self.gate = state
        self.caller = identity.caller
        self.turns = session_locks
        self.line = writer
        self._token = identity.token
        self._methods = methods
        self._open_ids: set[RequestId] = set()
        self._active_tasks: set[asyncio.Task[None]] = set()
        self._detached_tasks: set[asyncio.Task[None]] = set()
        self._is_disconnected = False

    async def serve(self, connection: HTTPConnection, receive: Receive) -> None:
        """Until the client leaves, or is sent away."""
        try:
            await self._send_hello()
            message = await receive()
            if await self._authenticate_first_frame(connection, message):
                message = await receive()
            while message["type"] != "websocket.disconnect":
                await self._handle_message(connection, message)
                message = await receive()
        except Disconnected:
            pass  # nobody is there to be told
        finally:
            await self._finish_tasks()

    async def _send_hello(self) -> None:
        hello = {
            "event": "hello",
            "version": dodona.__version__,
            "user": self.caller.user_id,
            "scopes": sorted(self.caller.scopes),
            "methods": [*self._methods],
        }
        await self.line.send(hello)

    async def _authenticate_first_frame(self, connection: HTTPConnection, message: Message) -> bool:
        """A client that was let in without a token may say who it is, in its first frame."""
        with suppress(DodonaError):
            document = frame.parse_frame(message, self.gate.settings.max_head_bytes)
            if is_token_frame(document):
                visitor = await identity_from_token(self.gate, connection, document["token"])
                if visitor is None:
                    await self.line.close(UNAUTHORIZED_CLOSE_CODE, "The token is not known.")
                else:
                    self.caller, self._token = visitor.caller, visitor.token
                    await self._send_hello()
                return True
        return False

    async def _handle_message(self, connection: HTTPConnection, message: Message) -> None:
        id_ = None
        try:
            if self._token is not None:
                # As for each request over HTTP: it may have been revoked, or used too often.
                self.caller = await authenticate(self.gate, connection, self._token)
            document = frame.parse_frame(message, self.gate.settings.max_body_bytes)
            id_ = self._check_id_unused(frame.id_of(document))
            self._start_call(connection, frame.read_request(document))
        except Unauthorized as error:
            await self.line.close(UNAUTHORIZED_CLOSE_CODE, error.message)
        except DodonaError as error:
            await self.line.send(frame.error_frame(id_, error, self.gate.redactor))

    def _check_id_unused(self, id_: RequestId | None) -> RequestId | None:
        if id_ in self._open_ids:
            # Not told under that id: it would be taken for the answer to the first one.
            raise BadRequest(
                f"id {id_!r:.80} is that of a request that is not answered yet.",
                hint="Give each request an id of its own.",
            )
        return id_

    def _start_call(self, connection: HTTPConnection, request: RpcRequest) -> None:
        method = self._methods.get(request.method)
        if method is None:
            raise NotFound(
                f"there is no method {request.method!r:.80}.",
                hint=did_you_mean(request.method, self._methods) or "The hello names them.",
            )
        try:
            self._check_allowed(method)
        except (AccessDenied, TooManyRequests) as error:
            audit_rejection(self.gate, connection.scope, error, self.caller)
            raise
        call = Call(self, request.id, read_params(method.parameters, request.params))
        self._open_ids.add(call.id)
        task = asyncio.create_task(self._run_call(method, call))
        self._active_tasks.add(task)
        task.add_done_callback(self._forget_task)

    def _check_allowed(self, method: Method) -> None:
        self.caller.require_scope(method.scope)
        if len(self._active_tasks) >= MAX_REQUESTS:
            raise TooManyRequests(
                f"{MAX_REQUESTS} requests of this connection are not answered yet.",
                hint="Wait for some of the answers.",
            )

    def _forget_task(self, task: asyncio.Task[None]) -> None:
        self._active_tasks.discard(task)
        self._detached_tasks.discard(task)

    async def _run_call(self, method: Method, call: Call) -> None:
        with suppress(Disconnected):  # nobody is there to be told
            try:
                await call.send_result(await method.handle(call))
            except DodonaError as error:
                await call.send_error(error)
            except Disconnected:
                raise
            except Exception:  # noqa: BLE001 - a boundary: a request
                _log.exception("%s failed", method.name)
                await call.send_error(unexpected_error())
            finally:
                self._open_ids.discard(call.id)

    # -- what calls ask of their connection ---------------------------------------------------

    def check_capacity(self) -> None:
        if len(self._detached_tasks) >= MAX_AWAITED_RUNS:
            raise TooManyRequests(
                f"this connection waits for {MAX_AWAITED_RUNS:,} runs.",
                hint="Wait for some of them to end, or open another connection.",
            )

    def detach(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        if self._is_disconnected:
            raise Disconnected
        self._active_tasks.discard(task)
        self._detached_tasks.add(task)

    def release(self, call: Call) -> None:
        self._open_ids.discard(call.id)

    async def _finish_tasks(self) -> None:
        """Let what is being taken in be taken in; end what only waits."""
        self._is_disconnected = True
        for task in self._detached_tasks:
            task.cancel()
        tasks = {*self._active_tasks, *self._detached_tasks}
        if tasks:
            await asyncio.gather(*tasks, return_exceptions=True)
