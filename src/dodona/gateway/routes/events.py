"""The caller's own events, as they happen. What happened before is not told again."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from starlette.responses import Response

from dodona.gateway.http.operation import EVENT_STREAM, Operation, ResponseSpec
from dodona.gateway.http.parameter import RequestParameter
from dodona.gateway.http.request import ApiRequest
from dodona.gateway.http.responses import encode_json


async def stream_events(request: ApiRequest) -> Response:
    if request.http_request.method == "HEAD":
        return Response(media_type="text/event-stream")
    return request.stream(_encode_events(request))


async def _encode_events(request: ApiRequest) -> AsyncGenerator[bytes]:
    redactor = request.state.redactor
    types = tuple(each.strip() for each in request.params["types"].split(","))
    async with request.api.events.subscribe(types=types, user_id=request.user_id) as told:
        yield b""  # from here on nothing is missed, so the client may know
        async for event in told:
            body = event.as_json()
            yield b"data: %b\n\n" % encode_json(redactor.redact_all(body) if redactor else body)


OPERATIONS = (
    Operation(
        method="GET",
        path="/api/events",
        name="followEvents",
        summary="Your events from now on.",
        handle=stream_events,
        parameters=(
            RequestParameter(
                name="types",
                description="Which: types like query.start, prefixes like tool.*, with commas between.",
                default="*",
            ),
        ),
        responses={200: ResponseSpec("One event after the other.", "Event", EVENT_STREAM)},
        errors=(400,),
    ),
)
