"""Views of projects (note folder, code folders, settings) and of a user's settings."""

from __future__ import annotations

import asyncio
import os.path
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Annotated, Any, Final, TypeAlias

from msgspec import UNSET, Meta, UnsetType
from msgspec.structs import asdict

from dodona.agent.turn_control.settings import (
    ModelSettings,
    SettingsChange,
    changed_values,
    read_settings,
)
from dodona.core.domain.projects import Project
from dodona.core.errors import BadRequest
from dodona.core.json_document import JsonDocument, RequestDocument, Timestamp
from dodona.store import Store

MAX_PATHS: Final = 100

ProjectName: TypeAlias = Annotated[str, Meta(min_length=1)]
Folder: TypeAlias = Annotated[str, Meta(min_length=1, description="An existing folder of notes.")]
Folders: TypeAlias = Annotated[list[Annotated[str, Meta(min_length=1)]], Meta(max_length=MAX_PATHS)]


class ProjectDocument(JsonDocument, kw_only=True):
    """A project."""

    id: str
    vault_path: Annotated[str | None, Meta(description="The folder of its notes.")]
    code_paths: tuple[str, ...]
    settings: Annotated[Mapping[str, Any], Meta(description="Settings of the project.")]
    created_at: Timestamp


class ProjectChange(RequestDocument, kw_only=True):
    """The fields of a project to change; null removes the folder of notes."""

    id: Annotated[str, Meta(description="The id cannot change.")] | UnsetType = UNSET
    vault_path: Folder | UnsetType | None = UNSET
    code_paths: Folders | UnsetType = UNSET
    settings: dict[str, Any] | UnsetType = UNSET


class NewProject(ProjectChange, kw_only=True):
    """A project to create."""

    id: ProjectName  # pyright: ignore[reportGeneralTypeIssues, reportIncompatibleVariableOverride]


class ProjectViews:
    """Projects of all users; each call names the user. Other users' projects are not found."""

    def __init__(self, storage: Store) -> None:
        self._projects = storage.projects

    async def list(self, user_id: str) -> list[ProjectDocument]:
        """List the user's projects."""
        return [_document(project) for project in await self._projects.list(user_id)]

    async def get(self, user_id: str, project_id: str) -> ProjectDocument:
        """Return one project."""
        return _document(await self._projects.get(user_id, project_id))

    async def create(self, user_id: str, project: NewProject) -> ProjectDocument:
        """Create a project."""
        fields = await asyncio.to_thread(_check_fields, project)
        return _document(await self._projects.create(Project(user_id, **fields)))

    async def change(self, user_id: str, project_id: str, change: ProjectChange) -> ProjectDocument:
        """Change some fields."""
        await self._projects.get(user_id, project_id)  # check access before validation
        if change.id not in (UNSET, project_id):
            raise BadRequest("the id of a project cannot change.", hint="Create another project.")
        fields = await asyncio.to_thread(_check_fields, change)
        project = await self._projects.update(
            user_id, project_id, lambda project: replace(project, **fields)
        )
        return _document(project)


def _document(project: Project) -> ProjectDocument:
    return ProjectDocument(
        id=project.id,
        vault_path=project.vault_path,
        code_paths=project.code_paths,
        settings=project.settings,
        created_at=Timestamp(project.created_at),
    )


def _check_fields(change: ProjectChange) -> dict[str, Any]:
    """Return the fields to set, with absolute paths. Checks folders on disk."""
    fields = {name: value for name, value in asdict(change).items() if value is not UNSET}
    problems: list[BadRequest] = []

    def check(name: str, path: str) -> str:
        try:
            return _check_folder(name, path)
        except BadRequest as problem:
            problems.append(problem)
            return path

    if fields.get("vault_path") is not None:
        fields["vault_path"] = check("vault_path", fields["vault_path"])
    if "code_paths" in fields:
        paths = enumerate(fields["code_paths"])
        fields["code_paths"] = tuple(check(f"code_paths[{index}]", path) for index, path in paths)
    if problems:
        raise BadRequest.combine(problems)
    return fields


def _check_folder(name: str, value: str) -> str:
    """The absolute path of a folder. Symbolic links are kept, since their targets may change."""
    path = os.path.expanduser(value)
    if not os.path.isabs(path):
        raise BadRequest(
            f"{name} must be an absolute path (got {value!r:.200}).",
            hint="Start it with / or, for your home directory, with ~.",
        )
    if not os.path.isdir(path):
        raise BadRequest(f"{name} is not a folder: {value!r:.200}.", hint="Create it first.")
    return os.path.normpath(path)


class SettingsViews:
    """Settings of all users; each call names the user."""

    def __init__(self, storage: Store) -> None:
        self._settings = storage.settings

    async def get(self, user_id: str) -> ModelSettings:
        """Return all settings."""
        return read_settings(await self._settings.get(user_id), user_id=user_id)

    async def change(self, user_id: str, change: SettingsChange) -> ModelSettings:
        """Change some settings atomically, and return all settings.

        Only changed values are stored, so a new default reaches users who did not set a value.
        """
        values = changed_values(change)
        return await self._update(user_id, lambda stored: {**stored, **values})

    async def replace(self, user_id: str, change: SettingsChange) -> ModelSettings:
        """Set all settings; those that the change does not name get their defaults."""
        values = asdict(ModelSettings()) | changed_values(change)
        return await self._update(user_id, lambda _: values)

    async def _update(
        self, user_id: str, update: Callable[[dict[str, Any]], dict[str, Any]]
    ) -> ModelSettings:
        return read_settings(await self._settings.update(user_id, update), user_id=user_id)
