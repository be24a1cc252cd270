"""A live stream of the caller's events. Past events are not replayed."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Annotated

import msgspec
from starlette.responses import Response

from dodona.core.events import Event
from dodona.gateway.http.operation import EVENT_STREAM, Routes, stream_response
from dodona.gateway.http.parameter import text
from dodona.gateway.http.request import ApiRequest
from dodona.gateway.http.responses import encode_json
from dodona.gateway.http.sse import encode_error

routes = Routes()


@routes.get("/api/events", responses={200: stream_response("A stream of events.", Event)})
async def follow_events(
    request: ApiRequest,
    types: Annotated[
        str, text("Comma-separated event types, such as query.start, or prefixes: tool.*")
    ] = "*",
) -> Response:
    """Stream your events as they happen."""
    if request.http_request.method == "HEAD":
        return Response(media_type=EVENT_STREAM)
    return request.stream(_encode_events(request, types), encode_error=encode_error)


async def _encode_events(request: ApiRequest, types: str) -> AsyncGenerator[bytes]:
    redactor = request.state.redactor
    patterns = tuple(each.strip() for each in types.split(","))
    async with request.api.events.subscribe(types=patterns, user_id=request.user_id) as events:
        yield b""  # sends the headers: from now on the client misses no event
        async for event in events:
            body = msgspec.to_builtins(event, enc_hook=str)
            yield b"data: %b\n\n" % encode_json(redactor.redact_all(body) if redactor else body)
