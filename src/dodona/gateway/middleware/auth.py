"""Auth middleware: identifies the caller and enforces rate limits and quotas."""

from __future__ import annotations

from collections.abc import Collection

from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.routing import compile_path
from starlette.types import ASGIApp, Receive, Scope, Send

from dodona.core.errors import BadRequest, DodonaError
from dodona.gateway.errors import TooManyRequests
from dodona.gateway.http.responses import error_response
from dodona.gateway.security.auth import (
    audit_rejection,
    authenticate,
    bearer_token,
    token_required_reason,
)
from dodona.gateway.security.caller import CALLER_KEY, LOCAL_OPERATOR, Caller
from dodona.gateway.security.client_address import address_of, client_key, is_loopback
from dodona.gateway.state import GatewayState


class AuthMiddleware:
    """ASGI middleware. `public_paths`, as routes spell them, never need a token."""

    def __init__(self, app: ASGIApp, state: GatewayState, public_paths: Collection[str]) -> None:
        self._app = app
        self._state = state
        self._public_paths = [compile_path(path)[0] for path in public_paths]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        match scope["type"]:
            case "http":
                await self._handle_http(scope, receive, send)
            case "websocket":
                await self._handle_websocket(scope, receive, send)
            case _:
                await self._app(scope, receive, send)

    async def _handle_http(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            caller = await self._admit(scope)
            self._check_in_flight_limit(scope, caller)
        except DodonaError as error:
            await error_response(error, self._state.redactor)(scope, receive, send)
            return
        scope[CALLER_KEY] = caller  # not in a copy: the access log reads it from this scope
        with self._state.quotas.track_in_flight(caller):
            await self._app(scope, receive, send)

    async def _handle_websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            _check_no_query(scope)
            caller = await self._admit(scope)
        except DodonaError as error:
            response = error_response(error, self._state.redactor).response_for(scope["path"])
            await _reject_upgrade(scope, send, response)
        else:
            scope[CALLER_KEY] = caller
            await self._app(scope, receive, send)

    async def _admit(self, scope: Scope) -> Caller | None:
        """Return the caller; None on public paths, or if a WebSocket may still send its token."""
        state, token = self._state, bearer_token(scope)
        address = address_of(scope, state.settings.proxies)
        if scope["type"] == "http" and self._is_public(scope["path"]):
            if not is_loopback(address):
                self._check_rate_limit(scope, address)
            return None
        if token is None and not token_required_reason(scope, state.settings):
            return LOCAL_OPERATOR
        self._check_rate_limit(scope, address)
        if token is None and scope["type"] == "websocket":
            return None
        return await authenticate(state, HTTPConnection(scope), token)

    def _is_public(self, path: str) -> bool:
        return any(pattern.match(path) for pattern in self._public_paths)

    def _check_rate_limit(self, scope: Scope, address: str) -> None:
        try:
            self._state.quotas.acquire_for_client(client_key(address))
        except TooManyRequests as error:
            audit_rejection(self._state, scope, error, None)
            raise

    def _check_in_flight_limit(self, scope: Scope, caller: Caller | None) -> None:
        try:
            self._state.quotas.check_in_flight(caller)
        except TooManyRequests as error:
            audit_rejection(self._state, scope, error, caller)
            raise


def _check_no_query(scope: Scope) -> None:
    """Refuse a query: a token in it would be ignored, and the request be the operator's."""
    if scope["query_string"]:
        raise BadRequest(
            "a WebSocket has no query parameters.",
            hint="Send a token in the header Authorization or in the first frame.",
        )


async def _reject_upgrade(scope: Scope, send: Send, response: Response) -> None:
    """Answer an upgrade with an HTTP response if the server can, else close it (a 403)."""
    if "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": 1008})
        return
    start = {"status": response.status_code, "headers": response.raw_headers}
    await send({"type": "websocket.http.response.start", **start})
    await send({"type": "websocket.http.response.body", "body": response.body})
