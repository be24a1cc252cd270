"""One WebSocket connection. Its requests run concurrently, and a failed one does not affect others.

Each request is a task. When the client disconnects, a task that is submitting a message finishes
it; a task that only waits for a run is cancelled, and the run continues.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from starlette.requests import HTTPConnection
from starlette.types import Message, Receive

from dodona.core.errors import (
    AccessDenied,
    BadRequest,
    DodonaError,
    NotFound,
    Unauthorized,
    did_you_mean,
)
from dodona.core.version import __version__
from dodona.gateway.errors import TooManyRequests
from dodona.gateway.http.responses import unexpected_error
from dodona.gateway.security.auth import audit_rejection, authenticate
from dodona.gateway.security.token_monitor import TokenWatch
from dodona.gateway.state import GatewayState
from dodona.gateway.websocket import frame
from dodona.gateway.websocket.call import Call, SessionLocks
from dodona.gateway.websocket.frame import RequestId, RpcRequest
from dodona.gateway.websocket.handshake import (
    Identity,
    identity_from_token,
    is_token_frame,
    token_in,
)
from dodona.gateway.websocket.method import RpcMethod
from dodona.gateway.websocket.protocol import (
    MAX_AWAITED_RUNS,
    MAX_OPEN_REQUESTS,
    UNAUTHORIZED_CLOSE_CODE,
)
from dodona.gateway.websocket.writer import Disconnected, FrameWriter

_log = logging.getLogger(__name__)


class Connection:
    """An accepted connection and its open requests."""

    __slots__ = (
        *("_request_tasks", "_run_wait_tasks", "_is_disconnected", "_methods", "_unanswered_ids"),
        *("_token", "caller", "followed_runs", "session_locks", "state", "writer"),
    )

    def __init__(
        self,
        state: GatewayState,
        identity: Identity,
        *,
        methods: Mapping[str, RpcMethod],
        session_locks: SessionLocks,
        writer: FrameWriter,
    ) -> None:
        self.state = state
        self.caller = identity.caller
        self.session_locks = session_locks
        self.writer = writer
        self.followed_runs: set[int] = set()  # whose events are being sent
        self._token = identity.token
        self._methods = methods
        self._unanswered_ids: set[RequestId] = set()
        self._request_tasks: set[asyncio.Task[None]] = set()
        self._run_wait_tasks: set[asyncio.Task[None]] = set()
        self._is_disconnected = False

    async def serve(self, connection: HTTPConnection, receive: Receive) -> None:
        """Handle frames until the client disconnects or is disconnected."""
        try:
            with self._watch_token():
                await self._send_hello()
                message = await receive()
            is_token = await self._consume_token_frame(connection, message)
            with self._watch_token():
                if is_token:
                    message = await receive()
                while message["type"] != "websocket.disconnect":
                    await self._handle_message(connection, message)
                    message = await receive()
        except Disconnected:
            pass  # there is no client left to answer
        finally:
            await self._finish_tasks()

    def _watch_token(self) -> TokenWatch:
        """Return a watch that closes the connection when the caller's token ends."""
        watch = self.state.token_monitor.watch(self.caller.token_id)
        watch.on_end(self._start_closing)
        return watch

    def _start_closing(self, reason: Unauthorized) -> None:
        task = asyncio.create_task(self._close_unauthorized(reason))
        self._request_tasks.add(task)
        task.add_done_callback(self._forget_task)

    async def _close_unauthorized(self, reason: Unauthorized) -> None:
        with suppress(Disconnected):
            await self.writer.close(UNAUTHORIZED_CLOSE_CODE, reason.message)

    async def _send_hello(self) -> None:
        hello = {
            "event": "hello",
            "version": __version__,
            "user": self.caller.user_id,
            "scopes": sorted(self.caller.scopes),
            "methods": [*self._methods],
        }
        await self.writer.send(hello)

    async def _consume_token_frame(self, connection: HTTPConnection, message: Message) -> bool:
        """Authenticate with a token in the first frame, which replaces the operator's identity."""
        with suppress(DodonaError):
            document = frame.parse_frame(message, self.state.settings.max_head_bytes)
            if is_token_frame(document):
                identity = await identity_from_token(self.state, connection, token_in(document))
                if identity is None:
                    await self.writer.close(UNAUTHORIZED_CLOSE_CODE, "The token is invalid.")
                else:
                    self.caller, self._token = identity.caller, identity.token
                    await self._send_hello()
                return True
        return False

    async def _handle_message(self, connection: HTTPConnection, message: Message) -> None:
        id_ = None
        try:
            if self._token is not None:
                # Checked for each frame, as for each HTTP request: it may have been revoked.
                self.caller = await authenticate(self.state, connection, self._token)
            document = frame.parse_frame(message, self.state.settings.max_body_bytes)
            id_ = self._check_id_unused(frame.id_of(document))
            self._start_call(connection, frame.read_request(document))
        except Unauthorized as error:
            await self._close_unauthorized(error)
        except DodonaError as error:
            await self.writer.send(frame.error_frame(id_, error, self.state.redactor))

    def _check_id_unused(self, id_: RequestId | None) -> RequestId | None:
        if id_ in self._unanswered_ids:
            # Reported without the id, or it would look like the response to the first request.
            raise BadRequest(
                f"id {id_!r:.80} belongs to a request that has no response yet.",
                hint="Use a unique id for each request.",
            )
        return id_

    def _start_call(self, connection: HTTPConnection, request: RpcRequest) -> None:
        method = self._methods.get(request.method)
        if method is None:
            raise NotFound(
                f"there is no method {request.method!r:.80}.",
                hint=did_you_mean(request.method, self._methods)
                or "The hello event lists the methods.",
            )
        try:
            self._check_scope_and_limits(method)
        except (AccessDenied, TooManyRequests) as error:
            audit_rejection(self.state, connection.scope, error, self.caller)
            raise
        arguments = method.read_params(request.params)
        call = Call(self, request.id)
        self._unanswered_ids.add(call.id)
        task = asyncio.create_task(self._run_call(method, call, arguments))
        self._request_tasks.add(task)
        task.add_done_callback(self._forget_task)

    def _check_scope_and_limits(self, method: RpcMethod) -> None:
        self.caller.require_scope(method.scope)
        if len(self._request_tasks) >= MAX_OPEN_REQUESTS:
            raise TooManyRequests(
                f"{MAX_OPEN_REQUESTS} requests on this connection have no response yet.",
                hint="Wait for some of the responses.",
            )

    def _forget_task(self, task: asyncio.Task[None]) -> None:
        self._request_tasks.discard(task)
        self._run_wait_tasks.discard(task)

    async def _run_call(self, method: RpcMethod, call: Call, arguments: Mapping[str, Any]) -> None:
        with suppress(Disconnected):  # there is no client left to answer
            try:
                await call.send_result(await method.handler(call, **arguments))
            except DodonaError as error:
                await call.send_error(error)
            except Disconnected:
                raise
            except Exception:  # noqa: BLE001 - a boundary: a request
                _log.exception("%s failed", method.name)
                await call.send_error(unexpected_error())
            finally:
                self._unanswered_ids.discard(call.id)

    # -- used by calls -------------------------------------------------------------------------

    def check_awaited_runs_limit(self) -> None:
        """Raise TooManyRequests if the connection waits for too many runs."""
        if len(self._run_wait_tasks) >= MAX_AWAITED_RUNS:
            raise TooManyRequests(
                f"this connection already waits for {MAX_AWAITED_RUNS:,} runs.",
                hint="Wait for some of them to end, or open another connection.",
            )

    def mark_waiting_for_run(self) -> None:
        """Move the current task to those that a disconnect cancels."""
        task = asyncio.current_task()
        assert task is not None
        if self._is_disconnected:
            raise Disconnected
        self._request_tasks.discard(task)
        self._run_wait_tasks.add(task)

    def free_request_id(self, call: Call) -> None:
        """Make the id of an answered call available again."""
        self._unanswered_ids.discard(call.id)

    async def _finish_tasks(self) -> None:
        """Finish active requests, and cancel those that only wait for a run."""
        self._is_disconnected = True
        for task in self._run_wait_tasks:
            task.cancel()
        tasks = {*self._request_tasks, *self._run_wait_tasks}
        if tasks:
            await asyncio.gather(*tasks, return_exceptions=True)
