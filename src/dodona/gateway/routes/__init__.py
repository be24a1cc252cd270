"""All HTTP operations, one group per file."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dodona.gateway.errors import MethodNotAllowed
from dodona.gateway.http.operation import Operation
from dodona.gateway.middleware.access_log import set_operation
from dodona.gateway.routes import (
    audit,
    code,
    events,
    health,
    notifications,
    oracle,
    page,
    projects,
    rules,
    runs,
    sessions,
    threads,
    tree,
    usage,
    v1,
    vault,
)
from dodona.gateway.state import GatewayState

_MODULES: Final = (
    *(oracle, tree, runs, sessions, projects, vault, threads, code),
    *(notifications, rules, usage, events, v1, audit, health, page),
)

OPERATIONS: Final[tuple[Operation, ...]] = tuple(
    operation for module in _MODULES for operation in module.routes.operations
)


def build_routes(state: GatewayState) -> list[Route]:
    """Return one route per path, which dispatches by method."""
    paths = dict.fromkeys(operation.path for operation in OPERATIONS)
    return [_build_route(state, path, [o for o in OPERATIONS if o.path == path]) for path in paths]


def _build_route(state: GatewayState, path: str, operations: Iterable[Operation]) -> Route:
    by_method = {operation.method: operation for operation in operations}
    if "GET" in by_method:
        by_method["HEAD"] = by_method["GET"]

    async def dispatch(request: Request) -> Response:
        operation = by_method.get(request.method)
        if operation is None:
            raise MethodNotAllowed(request.method, by_method)
        set_operation(request.scope, operation.operation_id)
        return await operation.respond(request, state)

    route = Route(path, dispatch)
    route.methods = None  # any method: `dispatch` answers unsupported ones
    return route
