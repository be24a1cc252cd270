"""The ASGI application: middleware, routes and error handlers."""

from __future__ import annotations

import logging

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import WebSocketRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dodona.core.errors import DodonaError, NotFound
from dodona.gateway.http.responses import error_response, internal_error_response
from dodona.gateway.middleware.access_log import AccessLog
from dodona.gateway.middleware.auth import AuthMiddleware
from dodona.gateway.middleware.origin_guard import OriginGuard
from dodona.gateway.openapi import build_openapi
from dodona.gateway.routes import OPERATIONS, build_routes
from dodona.gateway.security.connections import ConnectionLimiter
from dodona.gateway.shutdown import Shutdown
from dodona.gateway.state import GatewayState
from dodona.gateway.websocket import PATH, WebSocketApp
from dodona.net.redactor import Redactor

_log = logging.getLogger(__name__)


def make_app(state: GatewayState) -> Starlette:
    """Return the ASGI application that serves this state."""
    redactor = state.redactor
    public_paths = [operation.path for operation in OPERATIONS if operation.is_public]

    async def handle_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, DodonaError)
        if error.http_status >= 500:
            _log.warning("%s %s failed: %s", request.method, request.url.path, error)
        return error_response(error, redactor)

    async def handle_unknown_path(request: Request, _error: Exception) -> Response:
        return error_response(
            NotFound(
                f"there is no endpoint {request.url.path!r:.200}.", hint="See /api/openapi.json."
            ),
            redactor,
        )

    app = Starlette(
        routes=[*build_routes(state), WebSocketRoute(PATH, WebSocketApp(state))],
        middleware=[
            Middleware(AccessLog, state.metrics),
            Middleware(OriginGuard, state.settings, redactor),
            Middleware(_InternalErrorMiddleware, redactor),
            Middleware(AuthMiddleware, state, public_paths),
        ],
        exception_handlers={DodonaError: handle_error, HTTPException: handle_unknown_path},
    )
    app.router.redirect_slashes = False
    app.state.openapi = build_openapi()
    app.state.shutdown = state.shutdown
    app.state.connection_limiter = ConnectionLimiter(state.settings)
    return app


def shutdown_of(app: Starlette) -> Shutdown:
    """Return the shutdown signal of an application, which ends its streams."""
    return app.state.shutdown


def connection_limiter_of(app: Starlette) -> ConnectionLimiter:
    """Return the limit on open connections of an application."""
    return app.state.connection_limiter


class _InternalErrorMiddleware:
    """Log an unexpected exception and answer 500. Other requests are not affected."""

    def __init__(self, app: ASGIApp, redactor: Redactor | None) -> None:
        self._app = app
        self._redactor = redactor

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        has_started = False

        async def send_and_track(message: Message) -> None:
            nonlocal has_started
            has_started = has_started or message["type"] == "http.response.start"
            await send(message)

        try:
            await self._app(scope, receive, send_and_track)
        except ClientDisconnect:
            pass  # while its request was being read: there is no client left to answer
        except Exception:  # noqa: BLE001 - a boundary: a request
            _log.exception("%s %s failed", scope.get("method", "upgrade"), scope["path"])
            if not has_started and scope["type"] == "http":
                await internal_error_response(self._redactor)(scope, receive, send)
