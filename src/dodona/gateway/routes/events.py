"""A live stream of the caller's events. Past events are not replayed."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import msgspec
from starlette.responses import Response

from dodona.gateway.http.operation import EVENT_STREAM, Operation, ResponseSpec
from dodona.gateway.http.parameter import RequestParameter
from dodona.gateway.http.request import ApiRequest
from dodona.gateway.http.responses import encode_json


async def stream_events(request: ApiRequest) -> Response:
    """Stream the caller's events."""
    if request.http_request.method == "HEAD":
        return Response(media_type="text/event-stream")
    return request.stream(_encode_events(request))


async def _encode_events(request: ApiRequest) -> AsyncGenerator[bytes]:
    redactor = request.state.redactor
    types = tuple(each.strip() for each in request.params["types"].split(","))
    async with request.api.events.subscribe(types=types, user_id=request.user_id) as events:
        yield b""  # sends the headers: from now on the client misses no event
        async for event in events:
            body = msgspec.to_builtins(event, enc_hook=str)
            yield b"data: %b\n\n" % encode_json(redactor.redact_all(body) if redactor else body)


OPERATIONS = (
    Operation(
        method="GET",
        path="/api/events",
        operation_id="followEvents",
        summary="Stream your events as they happen.",
        handler=stream_events,
        parameters=(
            RequestParameter(
                name="types",
                description="Comma-separated event types, such as query.start, or prefixes: tool.*",
                default="*",
            ),
        ),
        responses={200: ResponseSpec("A stream of events.", "Event", EVENT_STREAM)},
        error_statuses=(400,),
    ),
)
