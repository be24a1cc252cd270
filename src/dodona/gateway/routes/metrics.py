"""Metrics for Prometheus, and a summary of the current activity."""

from __future__ import annotations

from starlette.responses import Response

from dodona.gateway.http.operation import ResponseSpec, Routes
from dodona.gateway.http.request import ApiRequest
from dodona.gateway.state import GatewayStatus
from dodona.telemetry.metrics import CONTENT_TYPE

routes = Routes()


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
