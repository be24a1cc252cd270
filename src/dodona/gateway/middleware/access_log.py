"""Around everything: each request gets an id, is measured, and has one line in the log.

Of the request the line has what is ours: method, operation, status, milliseconds, user. What
strangers write, such as paths and queries, is not in it.
"""

from __future__ import annotations

import logging
from time import perf_counter
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dodona.gateway.security.caller import CALLER, Caller
from dodona.telemetry.log_context import request_id, request_id_of
from dodona.telemetry.metrics import OTHER, Metrics

WATCHED: Final = "dodona.watched"  # in the scope of a request: what is known of it so far
HEADER: Final = b"x-request-id"

_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_READS: Final = ("GET", "HEAD")
_NOBODY: Final = "-"
_UNNAMED: Final = {"http": "none", "websocket": "websocket"}
_CUT: Final = "cut"  # instead of a status: nobody was answered

_log = logging.getLogger("dodona.access")


class AccessLog:
    """ASGI middleware, the outermost."""

    def __init__(self, app: ASGIApp, measures: Metrics) -> None:
        self._app = app
        self._measures = measures

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        given = [value for name, value in scope["headers"] if name == HEADER]
        id_ = request_id_of(given[0].decode("latin-1") if len(given) == 1 else "")
        before = request_id.set(id_)
        watched = _RequestLog(scope, send, id_, self._measures)
        scope[WATCHED] = watched
        self._measures.in_flight.add()
        try:
            await self._app(scope, receive, watched.send)
        finally:
            self._measures.in_flight.add(by=-1)
            watched.end()
            request_id.reset(before)


def set_operation(scope: Scope, name: str) -> None:
    """Tell whoever watches a request what it is for; who asks is known by then."""
    watched: _RequestLog | None = scope.get(WATCHED)
    if watched is not None:
        watched.operation = name
        caller: Caller | None = scope.get(CALLER)
        watched.user = _NOBODY if caller is None else caller.user_id


class _RequestLog:
    """One request, or one WebSocket, from its head to its end."""

    __slots__ = (
        *("_began", "_id", "_measures", "_scope", "_send", "_status", "_stream"),
        *("operation", "user"),
    )

    def __init__(self, scope: Scope, send: Send, id_: str, measures: Metrics) -> None:
        self._scope = scope
        self._send = send
        self._id = id_.encode()
        self._measures = measures
        self._began = perf_counter()
        self.operation = _UNNAMED[scope["type"]]
        self.user = _NOBODY
        self._status = 0
        self._stream = ""  # its kind, while it is open

    async def send(self, message: Message) -> None:
        match message["type"]:
            case "http.response.start" | "websocket.accept" | "websocket.http.response.start":
                self._begin(message)
            case "websocket.close" if not self._status:
                self._status = 403  # as the client sees it
            case _:
                pass
        await self._send(message)

    def _begin(self, message: Message) -> None:
        headers = message["headers"] = [*message.get("headers", ()), (HEADER, self._id)]
        self._status = message.get("status", 101)
        self._measures.request_seconds.observe(perf_counter() - self._began, self.operation)
        if self._status == 101:
            self._stream = "websocket"
        elif any(n == b"content-type" and v.startswith(b"text/event-stream") for n, v in headers):
            self._stream = "sse"
        if self._stream:
            self._measures.streams.add(self._stream)

    def end(self) -> None:
        if self._stream:
            self._measures.streams.add(self._stream, by=-1)
        method = self._scope.get("method", "GET")
        name = method if method in _METHODS else OTHER
        status = f"{self._status // 100}xx" if self._status else _CUT
        self._measures.requests.add(self.operation, name, status)
        went_well = name in _READS and 200 <= self._status < 400
        level = logging.DEBUG if went_well and not self._stream else logging.INFO
        if _log.isEnabledFor(level):
            self._tell(level, name)

    def _tell(self, level: int, method: str) -> None:
        fields = {
            "method": method,
            "operation": self.operation,
            "status": self._status or _CUT,
            "ms": round((perf_counter() - self._began) * 1000, 1),
            "user": self.user,
        }
        _log.log(level, "request", extra=fields)
