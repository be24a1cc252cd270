"""Projects as a user names them: where the notes are, where the code is, and settings."""

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
    """The projects of all users; every call says whose. Another's is not found."""

    def __init__(self, storage: Store) -> None:
        self._projects = storage.projects

    async def list(self, user_id: str) -> list[dict[str, Any]]:
        return [_as_json(project) for project in await self._projects.list(user_id)]

    async def get(self, user_id: str, project_id: str) -> dict[str, Any]:
        return _as_json(await self._projects.get(user_id, project_id))

    async def create(self, user_id: str, values: Mapping[str, Any]) -> dict[str, Any]:
        """Make one of `{id, vault_path?, code_paths?, settings?}`."""
        read = await asyncio.to_thread(_parse_fields, values, _FIELD_PARSERS)
        if "id" not in read:
            raise BadRequest("a project needs an id.", hint="Give it a name, such as 'garden'.")
        return _as_json(await self._projects.create(Project(user_id, **read)))

    async def change(
        self, user_id: str, project_id: str, values: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Put new values in the place of some; null takes a path away."""
        await self._projects.get(user_id, project_id)  # whose it is comes before what is wrong
        if values.get("id") == project_id:
            values = {name: value for name, value in values.items() if name != "id"}
        changing = {name: take for name, take in _FIELD_PARSERS.items() if name != "id"}
        read = await asyncio.to_thread(_parse_fields, values, changing)
        changed = await self._projects.update(
            user_id, project_id, lambda project: replace(project, **read)
        )
        return _as_json(changed)


def _as_json(project: Project) -> dict[str, Any]:
    return {
        "id": project.id,
        "vault_path": project.vault_path,
        "code_paths": list(project.code_paths),
        "settings": dict(project.settings),
        "created_at": iso(project.created_at),
    }


FieldParser = Callable[[str, Any], Any]


def _parse_fields(values: Mapping[str, Any], fields: Mapping[str, FieldParser]) -> dict[str, Any]:
    """The fields of a project; all that is wrong with them is told at once. It looks at folders."""
    found: dict[str, Any] = {}
    wrong: list[DodonaError] = []
    for name, value in values.items():
        try:
            found[name] = _find_parser(name, fields)(name, value)
        except BadRequest as mistake:
            wrong.append(mistake)
    if wrong:
        raise BadRequest.combine(wrong)
    return found


def _find_parser(name: str, fields: Mapping[str, FieldParser]) -> FieldParser:
    if name in fields:
        return fields[name]
    if name == "id":
        raise BadRequest("the id of a project stays.", hint="Create another one.")
    raise BadRequest(f"a project has no field {name!r:.80}.", hint=did_you_mean(name, fields))


def _parse_id(_: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise BadRequest("id must be a text.")
    return value


def _parse_folder(name: str, value: Any) -> str:
    """An absolute path, without links followed: they may lead elsewhere tomorrow."""
    if not isinstance(value, str) or not value:
        raise BadRequest(f"{name} must be the path of a folder.")
    path = os.path.expanduser(value)
    if not os.path.isabs(path):
        raise BadRequest(
            f"{name} must be an absolute path (got {value!r:.200}).",
            hint="Begin it with / or with ~ for your home.",
        )
    if not os.path.isdir(path):
        raise BadRequest(f"{name} is no folder: {value!r:.200}.", hint="Make it first.")
    return os.path.normpath(path)


def _parse_vault_path(name: str, value: Any) -> str | None:
    return None if value is None else _parse_folder(name, value)


def _parse_code_paths(name: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or len(cast("list[Any]", value)) > MAX_PATHS:
        raise BadRequest(f"{name} must be a list of at most {MAX_PATHS} folders.")
    listed = cast("list[Any]", value)
    return tuple(_parse_folder(f"{name}[{place}]", each) for place, each in enumerate(listed))


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
    """The settings of all users; every call says whose."""

    def __init__(self, storage: Store) -> None:
        self._settings = storage.settings

    async def get(self, user_id: str) -> dict[str, Any]:
        """The whole flat map."""
        return ModelSettings.read(await self._settings.get(user_id)).as_dict()

    async def change(self, user_id: str, values: Mapping[str, Any]) -> dict[str, Any]:
        """Change some of them, all or none; the whole map after that.

        Only what was chosen is kept, so that a better default reaches those who chose nothing.
        """
        ModelSettings.read(values)  # before anything is locked: mistakes are the likely thing

        def change(kept: dict[str, Any]) -> dict[str, Any]:
            chosen = {**kept, **values}
            ModelSettings.read(chosen)
            return chosen

        return ModelSettings.read(await self._settings.update(user_id, change)).as_dict()
