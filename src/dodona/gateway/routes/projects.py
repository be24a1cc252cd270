"""Projects, the folders of a user's notes and code; and a user's settings, models and limits."""

from __future__ import annotations

from typing import Annotated, TypeAlias
from urllib.parse import quote

from starlette.responses import Response

from dodona.agent.turn_control.settings import ModelSettings, SettingsChange
from dodona.agent.views.projects import NewProject, ProjectChange, ProjectDocument
from dodona.core.errors import AccessDenied
from dodona.core.json_document import JsonDocument
from dodona.gateway.http.operation import Routes, document_response
from dodona.gateway.http.parameter import text
from dodona.gateway.http.request import ApiRequest
from dodona.gateway.http.responses import json_response
from dodona.gateway.security.auth import audit_rejection

routes = Routes()

ProjectName: TypeAlias = Annotated[str, text("The id of the project.")]


class ProjectList(JsonDocument):
    """The projects."""

    projects: list[ProjectDocument]


@routes.get("/api/projects")
async def list_projects(request: ApiRequest) -> ProjectList:
    """List your projects."""
    return ProjectList(await request.api.projects.list(request.user_id))


@routes.post("/api/projects", responses={201: document_response(ProjectDocument)}, errors=(404,))
async def create_project(request: ApiRequest, body: NewProject) -> Response:
    """Create a project. Setting folders needs scope admin."""
    _authorize_folders(request, body)
    project = await request.api.projects.create(request.user_id, body)
    location = f"{request.prefix}/api/projects/{quote(project.id, safe='')}"
    return json_response(project, status=201, headers={"location": location})


@routes.get("/api/projects/{project_id}", errors=(404,))
async def show_project(request: ApiRequest, project_id: ProjectName) -> ProjectDocument:
    """Retrieve a project."""
    return await request.api.projects.get(request.user_id, project_id)


@routes.patch("/api/projects/{project_id}", errors=(404,))
async def change_project(
    request: ApiRequest, project_id: ProjectName, body: ProjectChange
) -> ProjectDocument:
    """Update a project. Setting folders needs scope admin."""
    _authorize_folders(request, body)
    return await request.api.projects.change(request.user_id, project_id, body)


def _authorize_folders(request: ApiRequest, body: ProjectChange) -> None:
    """Require scope admin to set folders of this machine."""
    if body.vault_path or body.code_paths:
        try:
            request.caller.require_scope("admin")
        except AccessDenied as error:
            audit_rejection(request.state, request.http_request.scope, error, request.caller)
            raise


@routes.get("/api/settings")
async def get_settings(request: ApiRequest) -> ModelSettings:
    """Retrieve your settings."""
    return await request.api.settings.get(request.user_id)


@routes.patch("/api/settings")
async def change_settings(request: ApiRequest, body: SettingsChange) -> ModelSettings:
    """Update some settings."""
    return await request.api.settings.change(request.user_id, body)


@routes.put("/api/settings")
async def replace_settings(request: ApiRequest, body: SettingsChange) -> ModelSettings:
    """Replace all settings. Missing ones get their defaults."""
    return await request.api.settings.replace(request.user_id, body)
