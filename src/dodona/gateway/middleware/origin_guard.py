"""The door. Nothing behind it sees a request that another web site could have made.

A browser visits strangers with our address at hand. So the Host must be ours (or DNS was bent), an
Origin must be ours, Sec-Fetch-Site must not tell of another site, and a body must be JSON, which
no form can send. This holds for every method and for upgrades, before anything is read.
"""

from __future__ import annotations

from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dodona.core.errors import AccessDenied, BadRequest, DodonaError
from dodona.gateway.errors import HeadTooLarge, UnsupportedMediaType
from dodona.gateway.http.responses import error_response
from dodona.gateway.middleware.body_limit import LimitedBody, body_too_large
from dodona.gateway.security.hosts import (
    allowed_hosts,
    allowed_origins,
    header_values,
    server_address,
)
from dodona.gateway.settings import GatewaySettings
from dodona.net.redactor import Redactor

_BODY_METHODS = ("POST", "PUT", "PATCH")
_ALLOWED_FETCH_SITES = ("same-origin", "none")  # our page, or a person who typed the address

SECURITY_HEADERS: Final[list[tuple[bytes, bytes]]] = [
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        b"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        b"require-trusted-types-for 'script'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
]


class OriginGuard:
    """ASGI middleware, to be put around everything."""

    def __init__(
        self, app: ASGIApp, settings: GatewaySettings, redactor: Redactor | None = None
    ) -> None:
        self._app = app
        self._settings = settings
        self._redactor = redactor

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        match scope["type"]:
            case "http":
                await self._handle_http(scope, receive, send)
            case "websocket":
                await self._handle_websocket(scope, receive, send)
            case _:
                await self._app(scope, receive, send)

    async def _handle_http(self, scope: Scope, receive: Receive, send: Send) -> None:
        intake = LimitedBody(receive, self._settings, has_body=_has_body(scope))
        way_out = _SecureSend(send, intake)
        try:
            self._check_head(scope)
            self._check_origin(scope)
            self._check_body_headers(scope)
        except DodonaError as error:
            await error_response(error, self._redactor)(scope, intake.receive, way_out.send)
        else:
            await self._app(scope, intake.receive, way_out.send)

    async def _handle_websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            self._check_origin(scope)
        except DodonaError as error:
            # Before it is accepted this is a 403 to the client.
            await send({"type": "websocket.close", "code": 1008, "reason": error.message})
        else:
            await self._app(scope, receive, send)

    def _check_head(self, scope: Scope) -> None:
        # The server limits only what comes in pieces.
        head = sum(len(name) + len(value) for name, value in scope["headers"])
        address = len(scope.get("raw_path") or b"") + len(scope["query_string"])
        if head + address > self._settings.max_head_bytes:
            raise HeadTooLarge(
                f"address and headers are larger than {self._settings.max_head_bytes:,} bytes."
            )

    def _check_origin(self, scope: Scope) -> None:
        headers, (address, port) = scope["headers"], server_address(scope)
        host = header_values(headers, b"host")
        if len(host) != 1:
            raise BadRequest("a request must have one Host header.")
        if host[0] not in allowed_hosts(self._settings, address, port):
            raise AccessDenied(
                f"{host[0]!r:.80} is not a name of this server.",
                hint=f"Use http://127.0.0.1:{port}/.",
            )
        ours = allowed_origins(self._settings, address, port)
        if any(origin not in ours for origin in header_values(headers, b"origin")):
            raise AccessDenied("another web site may not ask here.")
        sites = header_values(headers, b"sec-fetch-site")
        if any(site not in _ALLOWED_FETCH_SITES for site in sites) and not _is_page_navigation(
            scope
        ):
            raise AccessDenied("another web site may not ask here.")

    def _check_body_headers(self, scope: Scope) -> None:
        headers, has_body = scope["headers"], _has_body(scope)
        if not has_body and scope["method"] not in _BODY_METHODS:
            return
        if not _is_json(header_values(headers, b"content-type")):
            raise UnsupportedMediaType(
                "a body must be JSON.", hint="Send it with Content-Type: application/json."
            )
        if any(coding != "identity" for coding in header_values(headers, b"content-encoding")):
            raise UnsupportedMediaType("a body must not be compressed.")
        lengths = header_values(headers, b"content-length")
        if any(
            length.isdecimal() and int(length) > self._settings.max_body_bytes for length in lengths
        ):
            raise body_too_large(self._settings)


class _SecureSend:
    """Adds what every answer carries, and lets no answer be lost to a body still coming in."""

    def __init__(self, send: Send, body: LimitedBody) -> None:
        self._send = send
        self._body = body

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            closes = [] if self._body.is_complete else [(b"connection", b"close")]
            message["headers"] = [*message.get("headers", ()), *SECURITY_HEADERS, *closes]
        elif not self._body.is_complete and not message.get("more_body", False):
            await self._send({**message, "more_body": True})
            await self._body.discard()
            message = {"type": "http.response.body", "body": b""}
        await self._send(message)


def _has_body(scope: Scope) -> bool:
    headers = scope["headers"]
    return bool(header_values(headers, b"transfer-encoding")) or any(
        length != "0" for length in header_values(headers, b"content-length")
    )


def _is_json(content_types: list[str]) -> bool:
    if len(content_types) != 1:
        return False
    name, _, parameters = content_types[0].replace(" ", "").partition(";")
    charsets = ("", "charset=utf-8", 'charset="utf-8"')
    return name == "application/json" and parameters in charsets


def _is_page_navigation(scope: Scope) -> bool:
    """Does a person come to the page itself from elsewhere? It tells the other site nothing."""
    headers = scope["headers"]
    return (
        scope["type"] == "http"
        and scope["method"] in ("GET", "HEAD")
        and scope["path"] == "/"
        and header_values(headers, b"sec-fetch-mode") == ["navigate"]
        and header_values(headers, b"sec-fetch-dest") == ["document"]
    )
