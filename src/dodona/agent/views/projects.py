"""Views of projects (note folder, code folders, settings) and of a user's settings."""

from __future__ import annotations

import asyncio
import os.path
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, cast

from dodona.agent.turn_control.settings import ModelSettings
from dodona.agent.views.documents import iso
from dodona.core.domain.projects import Project
from dodona.core.errors import BadRequest, DodonaError, did_you_mean
from dodona.store import Store

MAX_PATHS: Final = 100


class ProjectViews:
    """Projects of all users; each call names the user. Other users' projects are not found."""

    def __init__(self, storage: Store) -> None:
        self._projects = storage.projects

    async def list(self, user_id: str) -> list[dict[str, Any]]:
        """List the user's projects."""
        return [_as_json(project) for project in await self._projects.list(user_id)]

    async def get(self, user_id: str, project_id: str) -> dict[str, Any]:
        """Return one project."""
        return _as_json(await self._projects.get(user_id, project_id))

    async def create(self, user_id: str, values: Mapping[str, Any]) -> dict[str, Any]:
        """Create a project from `{id, vault_path?, code_paths?, settings?}`."""
        fields = await asyncio.to_thread(_parse_fields, values, _FIELD_PARSERS)
        if "id" not in fields:
            raise BadRequest("a project needs an id.", hint="Give it a name, such as 'garden'.")
        return _as_json(await self._projects.create(Project(user_id, **fields)))

    async def change(
        self, user_id: str, project_id: str, values: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Change some fields; null removes a path."""
        await self._projects.get(user_id, project_id)  # check access before validation
        if values.get("id") == project_id:
            values = {name: value for name, value in values.items() if name != "id"}
        parsers = {name: parser for name, parser in _FIELD_PARSERS.items() if name != "id"}
        fields = await asyncio.to_thread(_parse_fields, values, parsers)
        project = await self._projects.update(
            user_id, project_id, lambda project: replace(project, **fields)
        )
        return _as_json(project)


def _as_json(project: Project) -> dict[str, Any]:
    return {
        "id": project.id,
        "vault_path": project.vault_path,
        "code_paths": list(project.code_paths),
        "settings": dict(project.settings),
        "created_at": iso(project.created_at),
    }


FieldParser = Callable[[str, Any], Any]


def _parse_fields(values: Mapping[str, Any], parsers: Mapping[str, FieldParser]) -> dict[str, Any]:
    """Parse fields of a project; raise all problems at once. Checks folders on disk."""
    fields: dict[str, Any] = {}
    problems: list[DodonaError] = []
    for name, value in values.items():
        try:
            fields[name] = _find_parser(name, parsers)(name, value)
        except BadRequest as error:
            problems.append(error)
    if problems:
        raise BadRequest.combine(problems)
    return fields


def _find_parser(name: str, parsers: Mapping[str, FieldParser]) -> FieldParser:
    if name in parsers:
        return parsers[name]
    if name == "id":
        raise BadRequest("the id of a project cannot change.", hint="Create another project.")
    raise BadRequest(f"a project has no field {name!r:.80}.", hint=did_you_mean(name, parsers))


def _parse_id(_: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise BadRequest("id must be a non-empty string.")
    return value


def _parse_folder(name: str, value: Any) -> str:
    """The absolute path of a folder. Symbolic links are kept, since their targets may change."""
    if not isinstance(value, str) or not value:
        raise BadRequest(f"{name} must be the path of a folder.")
    path = os.path.expanduser(value)
    if not os.path.isabs(path):
        raise BadRequest(
            f"{name} must be an absolute path (got {value!r:.200}).",
            hint="Start it with / or, for your home directory, with ~.",
        )
    if not os.path.isdir(path):
        raise BadRequest(f"{name} is not a folder: {value!r:.200}.", hint="Create it first.")
    return os.path.normpath(path)


def _parse_vault_path(name: str, value: Any) -> str | None:
    return None if value is None else _parse_folder(name, value)


def _parse_code_paths(name: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or len(cast("list[Any]", value)) > MAX_PATHS:
        raise BadRequest(f"{name} must be a list of at most {MAX_PATHS} folders.")
    folders = cast("list[Any]", value)
    return tuple(_parse_folder(f"{name}[{index}]", each) for index, each in enumerate(folders))


def _parse_settings(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BadRequest(f"{name} must be an object.")
    return cast("dict[str, Any]", value)


_FIELD_PARSERS: Final[Mapping[str, FieldParser]] = {
    "id": _parse_id,
    "vault_path": _parse_vault_path,
    "code_paths": _parse_code_paths,
    "settings": _parse_settings,
}


class SettingsViews:
    """Settings of all users; each call names the user."""

    def __init__(self, storage: Store) -> None:
        self._settings = storage.settings

    async def get(self, user_id: str) -> dict[str, Any]:
        """Return all settings as a flat map."""
        return ModelSettings.read(await self._settings.get(user_id)).as_dict()

    async def change(self, user_id: str, values: Mapping[str, Any]) -> dict[str, Any]:
        """Change some settings atomically, and return all settings.

        Only changed values are stored, so a new default reaches users who did not set a value.
        """
        ModelSettings.read(values)  # validate before locking, since invalid values are likely

        def merge(stored: dict[str, Any]) -> dict[str, Any]:
            merged = {**stored, **values}
            ModelSettings.read(merged)
            return merged

        return ModelSettings.read(await self._settings.update(user_id, merge)).as_dict()
