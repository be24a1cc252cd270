"""Behind the door: who is it, and may they ask so much? One caller at a time, each with a name."""

from __future__ import annotations

from collections.abc import Collection

from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from dodona.core.errors import DodonaError
from dodona.gateway.errors import TooManyRequests
from dodona.gateway.http.responses import error_response
from dodona.gateway.security.auth import (
    audit_refusal,
    authenticate,
    bearer_token,
    token_required_reason,
)
from dodona.gateway.security.caller import CALLER, OPERATOR, Caller
from dodona.gateway.security.client_address import address_of, client_key, is_loopback
from dodona.gateway.state import GatewayState


class AuthMiddleware:
    """ASGI middleware. `open_to_all` are the paths that need no token anywhere."""

    def __init__(self, app: ASGIApp, gate: GatewayState, open_to_all: Collection[str]) -> None:
        self._app = app
        self._gate = gate
        self._open = frozenset(open_to_all)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        match scope["type"]:
            case "http":
                await self._let_in(scope, receive, send)
            case "websocket":
                await self._let_upgrade(scope, receive, send)
            case _:
                await self._app(scope, receive, send)

    async def _let_in(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            caller = await self._caller(scope)
            self._check(scope, caller)
        except DodonaError as error:
            await error_response(error, self._gate.redactor)(scope, receive, send)
            return
        scope[CALLER] = caller  # no copy: those around look there for who it was
        with self._gate.crowd.in_flight(caller):
            await self._app(scope, receive, send)

    async def _let_upgrade(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            caller = await self._caller(scope)
        except DodonaError as error:
            answer = error_response(error, self._gate.redactor).told(scope["path"])
            await _turn_away(scope, send, answer)
        else:
            scope[CALLER] = caller
            await self._app(scope, receive, send)

    async def _caller(self, scope: Scope) -> Caller | None:
        """Who asks; None where that does not matter, or the first message may tell."""
        gate, token = self._gate, bearer_token(scope)
        address = address_of(scope, gate.rules.proxies)
        if scope["type"] == "http" and scope["path"] in self._open:
            if not is_loopback(address):
                self._acquire(scope, address)
            return None
        if token is None and not token_required_reason(scope, gate.rules):
            return OPERATOR
        self._acquire(scope, address)
        if token is None and scope["type"] == "websocket":
            return None
        return await authenticate(gate, HTTPConnection(scope), token)

    def _acquire(self, scope: Scope, address: str) -> None:
        try:
            self._gate.crowd.acquire_for_client(client_key(address))
        except TooManyRequests as error:
            audit_refusal(self._gate, scope, error, None)
            raise

    def _check(self, scope: Scope, caller: Caller | None) -> None:
        try:
            self._gate.crowd.check(caller)
        except TooManyRequests as error:
            audit_refusal(self._gate, scope, error, caller)
            raise


async def _turn_away(scope: Scope, send: Send, answer: Response) -> None:
    """As an answer if the server can, else by closing what was never opened: that is a 403."""
    if "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": 1008})
        return
    start = {"status": answer.status_code, "headers": answer.raw_headers}
    await send({"type": "websocket.http.response.start", **start})
    await send({"type": "websocket.http.response.body", "body": answer.body})
