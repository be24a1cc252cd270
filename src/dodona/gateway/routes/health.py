"""Is somebody there, and can they work?"""

from __future__ import annotations

from starlette.responses import Response

import dodona
from dodona.gateway.errors import ShuttingDown
from dodona.gateway.http.operation import Operation, ResponseSpec
from dodona.gateway.http.request import ApiRequest
from dodona.gateway.http.responses import json_response


async def alive(_visit: ApiRequest) -> Response:
    return json_response({"status": "ok", "name": "dodona", "version": dodona.__version__})


async def ready(visit: ApiRequest) -> Response:
    """Not while we are leaving: whoever balances load sends nothing here any more."""
    if visit.gate.closing.is_leaving:
        raise ShuttingDown("Dodona is stopping.")
    return json_response({"status": "ready", **await visit.gate.ready()})


OPERATIONS = (
    Operation(
        method="GET",
        path="/healthz",
        name="isAlive",
        summary="Answers as long as the process does.",
        handle=alive,
        responses={200: ResponseSpec("It does.", "Health")},
        errors=(400,),
        is_open=True,
    ),
    Operation(
        method="GET",
        path="/readyz",
        name="isReady",
        summary="Whether questions can be answered.",
        handle=ready,
        responses={200: ResponseSpec("They can.", "Readiness")},
        errors=(400, 503),
        scope="",
    ),
)
