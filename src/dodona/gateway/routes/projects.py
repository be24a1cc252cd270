"""Projects: where a user's notes and code are."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import quote

from starlette.responses import Response

from dodona.core.errors import AccessDenied
from dodona.gateway.http.operation import Operation, ResponseSpec
from dodona.gateway.http.parameter import Parameter
from dodona.gateway.http.request import ApiRequest
from dodona.gateway.http.responses import json_response
from dodona.gateway.security.auth import audit_refusal


async def listed(visit: ApiRequest) -> Response:
    return json_response({"projects": await visit.agency.projects.list(visit.user_id)})


async def create(visit: ApiRequest) -> Response:
    made = await visit.agency.projects.create(visit.user_id, await _values(visit))
    place = f"/api/projects/{quote(made['id'], safe='')}"
    return json_response(made, status=201, headers={"location": place})


async def shown(visit: ApiRequest) -> Response:
    return json_response(await visit.agency.projects.get(visit.user_id, visit.values["project_id"]))


async def change(visit: ApiRequest) -> Response:
    project_id, values = visit.values["project_id"], await _values(visit)
    return json_response(await visit.agency.projects.change(visit.user_id, project_id, values))


async def _values(visit: ApiRequest) -> dict[str, Any]:
    """What to set. A folder of this machine is no user's to take: that needs scope admin."""
    values = await visit.json()
    if any(values.get(name) for name in _FOLDERS):
        try:
            visit.caller.require_scope("admin")
        except AccessDenied as error:
            audit_refusal(visit.gate, visit.request.scope, error, visit.caller)
            raise
    return values


_FOLDERS: Final = ("vault_path", "code_paths")
_PROJECT = Parameter(name="project_id", about="Which project.", place="path")
_CHANGING = (400, 404, 408, 413, 415, 503)

OPERATIONS = (
    Operation(
        method="GET",
        path="/api/projects",
        name="listProjects",
        summary="Your projects.",
        handle=listed,
        responses={200: ResponseSpec("All of them.", "ProjectList")},
        errors=(400, 503),
    ),
    Operation(
        method="POST",
        path="/api/projects",
        name="createProject",
        summary="Make a project. To name folders of the machine needs scope admin.",
        handle=create,
        body="NewProject",
        responses={201: ResponseSpec("The project.", "Project")},
        errors=_CHANGING,
    ),
    Operation(
        method="GET",
        path="/api/projects/{project_id}",
        name="showProject",
        summary="One project.",
        handle=shown,
        parameters=(_PROJECT,),
        responses={200: ResponseSpec("The project.", "Project")},
        errors=(400, 404, 503),
    ),
    Operation(
        method="PATCH",
        path="/api/projects/{project_id}",
        name="changeProject",
        summary="Change a project. To name folders of the machine needs scope admin.",
        handle=change,
        parameters=(_PROJECT,),
        body="ProjectChange",
        responses={200: ResponseSpec("The project.", "Project")},
        errors=_CHANGING,
    ),
)
