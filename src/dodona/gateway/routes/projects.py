"""Projects: the folders of a user's notes and code."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import quote

from starlette.responses import Response

from dodona.core.errors import AccessDenied
from dodona.gateway.http.operation import Operation, ResponseSpec
from dodona.gateway.http.parameter import RequestParameter
from dodona.gateway.http.request import ApiRequest
from dodona.gateway.http.responses import json_response
from dodona.gateway.security.auth import audit_rejection


async def list_projects(request: ApiRequest) -> Response:
    """List the projects of the caller."""
    return json_response({"projects": await request.api.projects.list(request.user_id)})


async def create_project(request: ApiRequest) -> Response:
    """Create a project."""
    project = await request.api.projects.create(request.user_id, await _read_values(request))
    location = f"/api/projects/{quote(project['id'], safe='')}"
    return json_response(project, status=201, headers={"location": location})


async def get_project(request: ApiRequest) -> Response:
    """Return a project."""
    return json_response(
        await request.api.projects.get(request.user_id, request.params["project_id"])
    )


async def change_project(request: ApiRequest) -> Response:
    """Change a project."""
    project_id, values = request.params["project_id"], await _read_values(request)
    return json_response(await request.api.projects.change(request.user_id, project_id, values))


async def _read_values(request: ApiRequest) -> dict[str, Any]:
    """Return the values to set. Folders of this machine need scope admin."""
    values = await request.json()
    if any(values.get(name) for name in _FOLDER_FIELDS):
        try:
            request.caller.require_scope("admin")
        except AccessDenied as error:
            audit_rejection(request.state, request.http_request.scope, error, request.caller)
            raise
    return values


_FOLDER_FIELDS: Final = ("vault_path", "code_paths")
_PROJECT = RequestParameter(
    name="project_id", description="The id of the project.", location="path"
)
_WRITE_ERRORS = (400, 404, 408, 413, 415, 503)

OPERATIONS = (
    Operation(
        method="GET",
        path="/api/projects",
        operation_id="listProjects",
        summary="List your projects.",
        handler=list_projects,
        responses={200: ResponseSpec("The projects.", "ProjectList")},
        error_statuses=(400, 503),
    ),
    Operation(
        method="POST",
        path="/api/projects",
        operation_id="createProject",
        summary="Create a project. Setting folders needs scope admin.",
        handler=create_project,
        body_schema="NewProject",
        responses={201: ResponseSpec("The project.", "Project")},
        error_statuses=_WRITE_ERRORS,
    ),
    Operation(
        method="GET",
        path="/api/projects/{project_id}",
        operation_id="showProject",
        summary="Retrieve a project.",
        handler=get_project,
        parameters=(_PROJECT,),
        responses={200: ResponseSpec("The project.", "Project")},
        error_statuses=(400, 404, 503),
    ),
    Operation(
        method="PATCH",
        path="/api/projects/{project_id}",
        operation_id="changeProject",
        summary="Update a project. Setting folders needs scope admin.",
        handler=change_project,
        parameters=(_PROJECT,),
        body_schema="ProjectChange",
        responses={200: ResponseSpec("The project.", "Project")},
        error_statuses=_WRITE_ERRORS,
    ),
)
