"""Request ids, request metrics and the access log.

A log line has the method, operation, status, duration in milliseconds and user. It has no text
that clients choose, such as paths and queries.
"""

from __future__ import annotations

import logging
from time import perf_counter
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dodona.gateway.security.caller import CALLER_KEY, Caller
from dodona.telemetry.log_context import request_id, request_id_of
from dodona.telemetry.metrics import OTHER_LABEL, Metrics

REQUEST_LOG_KEY: Final = "dodona.watched"  # in the ASGI scope: the log of the request
REQUEST_ID_HEADER: Final = b"x-request-id"

_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_READ_METHODS: Final = ("GET", "HEAD")
_NO_USER: Final = "-"
_DEFAULT_OPERATIONS: Final = {"http": "none", "websocket": "websocket"}
_NO_RESPONSE: Final = "cut"  # instead of a status: no response was sent

_log = logging.getLogger("dodona.access")


class AccessLog:
    """The outermost ASGI middleware."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        request_ids = [value for name, value in scope["headers"] if name == REQUEST_ID_HEADER]
        id_ = request_id_of(request_ids[0].decode("latin-1") if len(request_ids) == 1 else "")
        reset_token = request_id.set(id_)
        request_log = _RequestLog(scope, send, id_, self._metrics)
        scope[REQUEST_LOG_KEY] = request_log
        self._metrics.in_flight.inc()
        try:
            await self._app(scope, receive, request_log.send)
        finally:
            self._metrics.in_flight.dec()
            request_log.finish()
            request_id.reset(reset_token)


def set_operation(scope: Scope, name: str) -> None:
    """Set the operation and the user in the log of a request. Call it after authentication."""
    request_log: _RequestLog | None = scope.get(REQUEST_LOG_KEY)
    if request_log is not None:
        request_log.operation = name
        caller: Caller | None = scope.get(CALLER_KEY)
        request_log.user = _NO_USER if caller is None else caller.user_id


class _RequestLog:
    """The log entry and metrics of one request or WebSocket connection."""

    __slots__ = (
        *("_started_at", "_request_id", "_metrics", "_scope", "_send", "_status", "_stream_kind"),
        *("operation", "user"),
    )

    def __init__(self, scope: Scope, send: Send, id_: str, metrics: Metrics) -> None:
        self._scope = scope
        self._send = send
        self._request_id = id_.encode()
        self._metrics = metrics
        self._started_at = perf_counter()
        self.operation = _DEFAULT_OPERATIONS[scope["type"]]
        self.user = _NO_USER
        self._status = 0
        self._stream_kind = ""  # "sse" or "websocket" for a stream

    async def send(self, message: Message) -> None:
        match message["type"]:
            case "http.response.start" | "websocket.accept" | "websocket.http.response.start":
                self._record_start(message)
            case "websocket.close" if not self._status:
                self._status = 403  # as the client sees it
            case _:
                pass
        await self._send(message)

    def _record_start(self, message: Message) -> None:
        headers = message["headers"] = [
            *message.get("headers", ()),
            (REQUEST_ID_HEADER, self._request_id),
        ]
        self._status = message.get("status", 101)
        seconds = perf_counter() - self._started_at
        self._metrics.request_seconds.labels(self.operation).observe(seconds)
        if self._status == 101:
            self._stream_kind = "websocket"
        elif any(n == b"content-type" and v.startswith(b"text/event-stream") for n, v in headers):
            self._stream_kind = "sse"
        if self._stream_kind:
            self._metrics.open_connections.labels(self._stream_kind).inc()

    def finish(self) -> None:
        if self._stream_kind:
            self._metrics.open_connections.labels(self._stream_kind).dec()
        method = self._scope.get("method", "GET")
        name = method if method in _METHODS else OTHER_LABEL
        status = f"{self._status // 100}xx" if self._status else _NO_RESPONSE
        self._metrics.requests.labels(self.operation, name, status).inc()
        is_routine = name in _READ_METHODS and 200 <= self._status < 400
        level = logging.DEBUG if is_routine and not self._stream_kind else logging.INFO
        if _log.isEnabledFor(level):
            self._log_request(level, name)

    def _log_request(self, level: int, method: str) -> None:
        fields = {
            "method": method,
            "operation": self.operation,
            "status": self._status or _NO_RESPONSE,
            "ms": round((perf_counter() - self._started_at) * 1000, 1),
            "user": self.user,
        }
        _log.log(level, "request", extra=fields)
