"""Metrics for Prometheus, and a summary of the current activity."""

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
            "runs": integer("Active runs."),
            "lanes_waiting": integer("Conversations with a queued run."),
            "streams": integer("Open event streams and WebSockets."),
            "budgets": array(ref("BudgetNow"), "Budgets of the current day and month."),
        },
        optional=("uptime_seconds", "runs", "lanes_waiting", "streams", "budgets"),
    ),
    "BudgetNow": response_object(
        {
            "scope": string(),
            "period": string(),
            "unit": enum("tokens", "usd"),
            "used": number("Usage, including reservations of calls in progress."),
            "ceiling": number(),
        }
    ),
}


async def get_metrics(request: ApiRequest) -> Response:
    """Return the metrics in the Prometheus text format."""
    text = await request.state.metrics.render()
    return Response(text, media_type=CONTENT_TYPE, headers={"cache-control": "no-store"})


async def get_status(request: ApiRequest) -> Response:
    """Return the current activity."""
    return json_response({"version": dodona.__version__, **await request.state.get_status()})


OPERATIONS = (
    Operation(
        method="GET",
        path="/metrics",
        operation_id="readMetrics",
        summary="Retrieve the metrics in the Prometheus text format.",
        handler=get_metrics,
        scope="admin",
        responses={200: ResponseSpec("The metrics.", "Text", "text/plain")},
        error_statuses=(400,),
    ),
    Operation(
        method="GET",
        path="/api/status",
        operation_id="readStatus",
        summary="Retrieve the current activity of the gateway.",
        handler=get_status,
        scope="admin",
        responses={200: ResponseSpec("Runs, queues, streams and budgets.", "Status")},
        error_statuses=(400, 503),
    ),
)
