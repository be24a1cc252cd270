"""What the process counts, for Prometheus; and the same in short, for people."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

import dodona
from dodona.gateway.http.json_schema import (
    Schema,
    array,
    enum,
    integer,
    number,
    ref,
    response_object,
    string,
)
from dodona.gateway.http.operation import Operation, ResponseSpec
from dodona.gateway.http.request import ApiRequest
from dodona.gateway.http.responses import json_response
from dodona.telemetry.metrics import CONTENT_TYPE

SCHEMAS: Final[dict[str, Schema]] = {
    "Status": response_object(
        {
            "version": string(),
            "uptime_seconds": number(),
            "runs": integer("That are driven now."),
            "lanes_waiting": integer("Conversations in which a run waits for its turn."),
            "streams": integer("Event streams and WebSockets that are open."),
            "budgets": array(ref("BudgetNow"), "Of this day and this month."),
        },
        optional=("uptime_seconds", "runs", "lanes_waiting", "streams", "budgets"),
    ),
    "BudgetNow": response_object(
        {
            "scope": string(),
            "period": string(),
            "unit": enum("tokens", "usd"),
            "used": number("With what calls on their way may use."),
            "ceiling": number(),
        }
    ),
}


async def get_metrics(request: ApiRequest) -> Response:
    text = await request.state.services.metrics.render()
    return Response(text, media_type=CONTENT_TYPE, headers={"cache-control": "no-store"})


async def get_status(request: ApiRequest) -> Response:
    return json_response(
        {"version": dodona.__version__, **await request.state.services.get_status()}
    )


OPERATIONS = (
    Operation(
        method="GET",
        path="/metrics",
        name="readMetrics",
        summary="What the process counts, in the text format of Prometheus.",
        handle=get_metrics,
        scope="admin",
        responses={200: ResponseSpec("The numbers.", "Text", "text/plain")},
        errors=(400,),
    ),
    Operation(
        method="GET",
        path="/api/status",
        name="readStatus",
        summary="What the gateway does at the moment.",
        handle=get_status,
        scope="admin",
        responses={200: ResponseSpec("Runs, lanes, streams and budgets now.", "Status")},
        errors=(400, 503),
    ),
)
