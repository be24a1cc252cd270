"""The application: the guard around everything, then routes, then one place for errors."""

from __future__ import annotations

import logging

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import WebSocketRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dodona.agent.api import AgentApi
from dodona.core.errors import DodonaError, NotFound
from dodona.gateway.http.responses import error_response, internal_error_response
from dodona.gateway.middleware.access_log import AccessLog
from dodona.gateway.middleware.auth import AuthMiddleware
from dodona.gateway.middleware.origin_guard import OriginGuard
from dodona.gateway.openapi import build_openapi
from dodona.gateway.routes import OPERATIONS, build_routes
from dodona.gateway.security.connections import ConnectionLimiter
from dodona.gateway.security.quotas import RequestQuotas
from dodona.gateway.security.token_cache import TokenCache
from dodona.gateway.settings import GatewaySettings
from dodona.gateway.shutdown import Shutdown
from dodona.gateway.state import GatewayServices, GatewayState, ReadinessCheck
from dodona.gateway.websocket import PATH, WebSocketApp
from dodona.net.redactor import Redactor

_log = logging.getLogger(__name__)


def make_app(
    api: AgentApi,
    *,
    settings: GatewaySettings,
    check_readiness: ReadinessCheck,
    services: GatewayServices | None = None,
    redactor: Redactor | None = None,
) -> Starlette:
    """All of it over an agency. `redactor` keeps secrets out of errors."""
    services = services or GatewayServices()
    gate = GatewayState(
        api=api,
        settings=settings,
        check_readiness=check_readiness,
        openapi=build_openapi(),
        token_cache=TokenCache(services.tokens, settings.limits),
        quotas=RequestQuotas(settings.limits),
        services=services,
        redactor=redactor,
    )
    open_to_all = [operation.path for operation in OPERATIONS if operation.is_public]

    async def refuse(request: Request, error: Exception) -> Response:
        assert isinstance(error, DodonaError)
        if error.http_status >= 500:
            _log.warning("%s %s failed: %s", request.method, request.url.path, error)
        return error_response(error, redactor)

    async def unknown(request: Request, _error: Exception) -> Response:
        return error_response(
            NotFound(
                f"there is nothing at {request.url.path!r:.200}.", hint="See /api/openapi.json."
            ),
            redactor,
        )

    app = Starlette(
        routes=[*build_routes(gate), WebSocketRoute(PATH, WebSocketApp(gate))],
        middleware=[
            Middleware(AccessLog, services.metrics),
            Middleware(OriginGuard, settings, redactor),
            Middleware(_InternalErrorMiddleware, redactor),
            Middleware(AuthMiddleware, gate, open_to_all),
        ],
        exception_handlers={DodonaError: refuse, HTTPException: unknown},
    )
    app.router.redirect_slashes = False
    app.state.closing = gate.shutdown
    app.state.connections = ConnectionLimiter(settings)
    return app


def shutdown_of(app: Starlette) -> Shutdown:
    """How to end the streams of an application."""
    return app.state.closing


def connection_limiter_of(app: Starlette) -> ConnectionLimiter:
    """How many may come to an application at once."""
    return app.state.connections


class _InternalErrorMiddleware:
    """A bug in one request is told to the log, and ends nothing but that request."""

    def __init__(self, app: ASGIApp, redactor: Redactor | None) -> None:
        self._app = app
        self._redactor = redactor

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        has_begun = False

        async def watched(message: Message) -> None:
            nonlocal has_begun
            has_begun = has_begun or message["type"] == "http.response.start"
            await send(message)

        try:
            await self._app(scope, receive, watched)
        except ClientDisconnect:
            pass  # in the middle of its own request: nobody is there to be told
        except Exception:  # noqa: BLE001 - a boundary: a request
            _log.exception("%s %s failed", scope.get("method", "upgrade"), scope["path"])
            if not has_begun and scope["type"] == "http":
                await internal_error_response(self._redactor)(scope, receive, send)
