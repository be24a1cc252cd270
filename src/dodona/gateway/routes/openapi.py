"""The description of all this for programs."""

from __future__ import annotations

from starlette.responses import Response

from dodona.gateway.http.operation import Operation, ResponseSpec
from dodona.gateway.http.request import ApiRequest
from dodona.gateway.http.responses import json_response


async def document(visit: ApiRequest) -> Response:
    return json_response(visit.gate.document)


OPERATIONS = (
    Operation(
        method="GET",
        path="/api/openapi.json",
        name="describe",
        summary="This document: OpenAPI 3.1.",
        handle=document,
        responses={200: ResponseSpec("OpenAPI.", "Description")},
        errors=(400,),
        scope="",
    ),
)
