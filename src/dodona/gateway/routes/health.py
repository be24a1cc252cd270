"""Health, readiness, and the OpenAPI document."""

from __future__ import annotations

from starlette.responses import Response

import dodona
from dodona.gateway.errors import ShuttingDown
from dodona.gateway.http.operation import Operation, ResponseSpec
from dodona.gateway.http.request import ApiRequest
from dodona.gateway.http.responses import json_response


async def get_health(_request: ApiRequest) -> Response:
    """Report that the process is alive."""
    return json_response({"status": "ok", "name": "dodona", "version": dodona.__version__})


async def get_readiness(request: ApiRequest) -> Response:
    """Report 503 during shutdown, so that load balancers stop sending requests here."""
    if request.state.shutdown.has_started:
        raise ShuttingDown("Dodona is shutting down.")
    return json_response({"status": "ready", **await request.state.check_readiness()})


async def openapi(request: ApiRequest) -> Response:
    """Return the OpenAPI document."""
    return json_response(request.http_request.app.state.openapi)


OPERATIONS = (
    Operation(
        method="GET",
        path="/healthz",
        operation_id="isAlive",
        summary="Check that the process is alive.",
        handler=get_health,
        responses={200: ResponseSpec("The process is alive.", "Health")},
        error_statuses=(400,),
        is_public=True,
    ),
    Operation(
        method="GET",
        path="/readyz",
        operation_id="isReady",
        summary="Check that the gateway can answer questions.",
        handler=get_readiness,
        responses={200: ResponseSpec("The gateway is ready.", "Readiness")},
        error_statuses=(400, 503),
        scope="",
    ),
    Operation(
        method="GET",
        path="/api/openapi.json",
        operation_id="describe",
        summary="Retrieve this document (OpenAPI 3.1).",
        handler=openapi,
        responses={200: ResponseSpec("The OpenAPI document.", "Description")},
        error_statuses=(400,),
        scope="",
    ),
)
