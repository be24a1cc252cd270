"""What the process counts, for Prometheus; and the same in short, for people."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

import dodona
from dodona.gateway.http.json_schema import (
    Schema,
    document,
    listed,
    named,
    number,
    one_of,
    text,
    whole,
)
from dodona.gateway.http.operation import Operation, ResponseSpec
from dodona.gateway.http.request import ApiRequest
from dodona.gateway.http.responses import json_response
from dodona.telemetry.metrics import CONTENT_TYPE

SCHEMAS: Final[dict[str, Schema]] = {
    "Status": document(
        {
            "version": text(),
            "uptime_seconds": number(),
            "runs": whole("That are driven now."),
            "lanes_waiting": whole("Conversations in which a run waits for its turn."),
            "streams": whole("Event streams and WebSockets that are open."),
            "budgets": listed(named("BudgetNow"), "Of this day and this month."),
        },
        optional=("uptime_seconds", "runs", "lanes_waiting", "streams", "budgets"),
    ),
    "BudgetNow": document(
        {
            "scope": text(),
            "period": text(),
            "unit": one_of("tokens", "usd"),
            "used": number("With what calls on their way may use."),
            "ceiling": number(),
        }
    ),
}


async def metrics(visit: ApiRequest) -> Response:
    text = await visit.gate.beside.measures.text()
    return Response(text, media_type=CONTENT_TYPE, headers={"cache-control": "no-store"})


async def status(visit: ApiRequest) -> Response:
    return json_response({"version": dodona.__version__, **await visit.gate.beside.status()})


OPERATIONS = (
    Operation(
        method="GET",
        path="/metrics",
        name="readMetrics",
        summary="What the process counts, in the text format of Prometheus.",
        handle=metrics,
        scope="admin",
        responses={200: ResponseSpec("The numbers.", "Text", "text/plain")},
        errors=(400,),
    ),
    Operation(
        method="GET",
        path="/api/status",
        name="readStatus",
        summary="What the gateway does at the moment.",
        handle=status,
        scope="admin",
        responses={200: ResponseSpec("Runs, lanes, streams and budgets now.", "Status")},
        errors=(400, 503),
    ),
)
