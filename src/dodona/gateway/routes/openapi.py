"""The description of all this for programs."""

from __future__ import annotations

from starlette.responses import Response

from dodona.gateway.answers import answer
from dodona.gateway.operation import Operation, Says
from dodona.gateway.visit import Visit


async def document(visit: Visit) -> Response:
    return answer(visit.gate.document)


OPERATIONS = (
    Operation(
        method="GET",
        path="/api/openapi.json",
        name="describe",
        about="This document: OpenAPI 3.1.",
        handle=document,
        answers={200: Says("OpenAPI.", "Description")},
        errors=(400,),
        scope="",
    ),
)
