"""Health, readiness, metrics and status of the gateway, and the OpenAPI document."""

from __future__ import annotations

from typing import Any, Literal

from starlette.responses import Response

from dodona.core.json_document import JsonDocument
from dodona.core.version import __version__
from dodona.gateway.errors import ShuttingDown
from dodona.gateway.http.operation import ResponseSpec, Routes, document_response
from dodona.gateway.http.request import ApiRequest
from dodona.gateway.http.responses import json_response
from dodona.gateway.state import GatewayStatus
from dodona.telemetry.metrics import CONTENT_TYPE

routes = Routes()


class Health(JsonDocument):
    """The process is alive."""

    status: Literal["ok"]
    name: str
    version: str


class Readiness(JsonDocument):
    """The gateway is ready."""

    status: Literal["ready"]


@routes.get("/healthz", is_public=True)
async def is_alive(_request: ApiRequest) -> Health:
    """Check that the process is alive."""
    return Health("ok", "dodona", __version__)


@routes.get("/readyz", responses={200: document_response(Readiness)}, scope="")
async def is_ready(request: ApiRequest) -> Response:
    """Check that the gateway can answer questions.

    During shutdown it cannot, so that load balancers stop sending requests here.
    """
    if request.state.shutdown.has_started:
        raise ShuttingDown("Dodona is shutting down.")
    return json_response({"status": "ready", **await request.state.check_readiness()})


@routes.get(
    "/api/openapi.json",
    responses={200: ResponseSpec("The OpenAPI document.", dict[str, Any])},
    scope="",
)
async def describe(request: ApiRequest) -> Response:
    """Retrieve this document (OpenAPI 3.1)."""
    servers = [{"url": request.prefix or "/"}]
    return json_response({**request.http_request.app.state.openapi, "servers": servers})


@routes.get(
    "/metrics", responses={200: ResponseSpec("The metrics.", str, "text/plain")}, scope="admin"
)
async def read_metrics(request: ApiRequest) -> Response:
    """Retrieve the metrics in the Prometheus text format."""
    content = await request.state.metrics.render()
    return Response(content, media_type=CONTENT_TYPE, headers={"cache-control": "no-store"})


@routes.get("/api/status", scope="admin")
async def read_status(request: ApiRequest) -> GatewayStatus:
    """Retrieve the current activity of the gateway."""
    return await request.state.get_status()
