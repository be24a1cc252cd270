"""Protection against cross-site requests (CSRF) and DNS rebinding.

Any web site can make a browser send requests to this server. So the Host header must name this
server, an Origin header must be ours, Sec-Fetch-Site must not indicate another site, and a body
must be JSON, which no HTML form can send. Nor may its length be ambiguous: a proxy that reads it
differently would forward a second request hidden in the first. The checks apply to every method and
to WebSocket upgrades, before the body is read.
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
_ALLOWED_FETCH_SITES = ("same-origin", "none")  # our page, or an address typed by the user

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
    """ASGI middleware. Only the access log is outside of it."""

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
        body = LimitedBody(receive, self._settings, has_body=_has_body(scope))
        secure_send = _SecureSend(send, body)
        try:
            self._check_head(scope)
            _check_framing(scope)
            self._check_origin(scope)
            self._check_body_headers(scope)
        except DodonaError as error:
            await error_response(error, self._redactor)(scope, body.receive, secure_send.send)
        else:
            await self._app(scope, body.receive, secure_send.send)

    async def _handle_websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            self._check_origin(scope)
        except DodonaError as error:
            # Before the connection is accepted, the client sees this as a 403.
            await send({"type": "websocket.close", "code": 1008, "reason": error.message})
        else:
            await self._app(scope, receive, send)

    def _check_head(self, scope: Scope) -> None:
        # The server's own limit applies only to headers that arrive in several pieces.
        header_bytes = sum(len(name) + len(value) for name, value in scope["headers"])
        url_bytes = len(scope.get("raw_path") or b"") + len(scope["query_string"])
        if header_bytes + url_bytes > self._settings.max_head_bytes:
            raise HeadTooLarge(
                f"URL and headers are larger than {self._settings.max_head_bytes:,} bytes."
            )

    def _check_origin(self, scope: Scope) -> None:
        headers, (address, port) = scope["headers"], server_address(scope)
        host = header_values(headers, b"host")
        if len(host) != 1:
            raise BadRequest("a request must have exactly one Host header.")
        if host[0] not in allowed_hosts(self._settings, address, port):
            raise AccessDenied(
                f"{host[0]!r:.80} is not a host name of this server.",
                hint=f"Use http://127.0.0.1:{port}/.",
            )
        origins = allowed_origins(self._settings, address, port)
        if any(origin not in origins for origin in header_values(headers, b"origin")):
            raise AccessDenied("cross-site requests are not allowed.")
        sites = header_values(headers, b"sec-fetch-site")
        if any(site not in _ALLOWED_FETCH_SITES for site in sites) and not _is_page_navigation(
            scope
        ):
            raise AccessDenied("cross-site requests are not allowed.")

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
    """Adds security headers, and drains an unread body so that the response is not lost."""

    def __init__(self, send: Send, body: LimitedBody) -> None:
        self._send = send
        self._body = body

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            closing = [] if self._body.is_complete else [(b"connection", b"close")]
            message["headers"] = [*message.get("headers", ()), *SECURITY_HEADERS, *closing]
        elif not self._body.is_complete and not message.get("more_body", False):
            await self._send({**message, "more_body": True})
            await self._body.discard()
            message = {"type": "http.response.body", "body": b""}
        await self._send(message)


def _check_framing(scope: Scope) -> None:
    """Refuse a body whose end is ambiguous. The HTTP parser refuses other malformed lengths."""
    headers = scope["headers"]
    if not header_values(headers, b"transfer-encoding"):
        return
    if header_values(headers, b"content-length"):
        raise BadRequest(
            "a request must not have both Content-Length and Transfer-Encoding.",
            hint="Send one of them.",
        )
    if scope["http_version"] == "1.0":
        raise BadRequest("HTTP/1.0 has no Transfer-Encoding.", hint="Use HTTP/1.1.")


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
    """Whether the user follows a link to our page. The other site learns nothing from it."""
    headers = scope["headers"]
    return (
        scope["type"] == "http"
        and scope["method"] in ("GET", "HEAD")
        and scope["path"] == "/"
        and header_values(headers, b"sec-fetch-mode") == ["navigate"]
        and header_values(headers, b"sec-fetch-dest") == ["document"]
    )
