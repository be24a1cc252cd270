"""The caller's own events, as they happen. What happened before is not told again."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from starlette.responses import Response

from dodona.gateway.http.operation import EVENTS, Operation, ResponseSpec
from dodona.gateway.http.parameter import Parameter
from dodona.gateway.http.request import ApiRequest
from dodona.gateway.http.responses import encoded


async def events(visit: ApiRequest) -> Response:
    if visit.request.method == "HEAD":
        return Response(media_type="text/event-stream")
    return visit.stream(_pieces(visit))


async def _pieces(visit: ApiRequest) -> AsyncGenerator[bytes]:
    redactor = visit.gate.redactor
    types = tuple(each.strip() for each in visit.values["types"].split(","))
    async with visit.agency.events.subscribe(types=types, user_id=visit.user_id) as told:
        yield b""  # from here on nothing is missed, so the client may know
        async for event in told:
            body = event.as_json()
            yield b"data: %b\n\n" % encoded(redactor.hide_all(body) if redactor else body)


OPERATIONS = (
    Operation(
        method="GET",
        path="/api/events",
        name="followEvents",
        summary="Your events from now on.",
        handle=events,
        parameters=(
            Parameter(
                name="types",
                about="Which: types like query.start, prefixes like tool.*, with commas between.",
                default="*",
            ),
        ),
        responses={200: ResponseSpec("One event after the other.", "Event", EVENTS)},
        errors=(400,),
    ),
)
