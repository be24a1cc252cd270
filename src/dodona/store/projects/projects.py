"""Storage of projects: the location of a user's notes and code."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from sqlalchemy import bindparam, select, update

from dodona.core.domain.projects import DEFAULT_PROJECT, Project
from dodona.core.errors import BadRequest, NotFound
from dodona.store.db.database import Database, Row, Transaction
from dodona.store.db.statements import insert_if_absent, statement
from dodona.store.db.text import from_json, to_json
from dodona.store.schema import projects

# Ids appear in URLs and become folder names.
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


_MUTABLE_COLUMNS = ("vault_path", "code_paths_json", "settings_json")
_COLUMNS = ("user_id", "id", *_MUTABLE_COLUMNS, "created_at")
PROJECT_COLUMNS = tuple(projects.c[name] for name in _COLUMNS[2:])
_BY_USER_AND_ID = (
    projects.c.user_id == bindparam("its_user"),
    projects.c.id == bindparam("its_id"),
)
_SELECT = select(*(projects.c[name] for name in _COLUMNS))

_SELECT_PROJECT = statement(_SELECT.where(*_BY_USER_AND_ID))
_LOCK_PROJECT = statement(_SELECT.where(*_BY_USER_AND_ID).with_for_update())
_SELECT_PROJECTS = statement(
    _SELECT.where(_BY_USER_AND_ID[0]).order_by(projects.c.created_at, projects.c.id)
)
_INSERT_PROJECT = insert_if_absent(projects, *_COLUMNS)
_UPDATE_PROJECT = statement(
    update(projects)
    .where(*_BY_USER_AND_ID)
    .values({name: bindparam(f"new_{name}") for name in _MUTABLE_COLUMNS})
)


class Projects:
    """The projects of all users."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(self, project: Project) -> Project:
        if not _ID.fullmatch(project.id):
            raise BadRequest(
                f"{project.id!r:.80} is not a valid project name.",
                hint="Use up to 64 letters, digits, dots, hyphens and underscores.",
            )

        def create(tx: Transaction) -> Project:
            if not _insert_project(tx, project):
                raise BadRequest(
                    f"the project {project.id} already exists.", hint="Choose another name."
                )
            return find_project(tx, project.user_id, project.id)

        return await self._database.write(create)

    async def get(self, user_id: str, project_id: str) -> Project:
        """Return the user's project; another user's project is NotFound."""
        row = await self._database.read(
            lambda tx: tx.fetch_one(_SELECT_PROJECT, its_user=user_id, its_id=project_id)
        )
        if row is not None:
            return _project_from_full_row(row)
        return await self._database.write(lambda tx: find_project(tx, user_id, project_id))

    async def list(self, user_id: str) -> list[Project]:
        """List the user's projects, oldest first."""
        await self.get(user_id, DEFAULT_PROJECT)
        rows = await self._database.read(
            lambda tx: tx.fetch_all(_SELECT_PROJECTS, its_user=user_id)
        )
        return [_project_from_full_row(row) for row in rows]

    async def update(
        self, user_id: str, project_id: str, change: Callable[[Project], Project]
    ) -> Project:
        """Replace paths and settings with the result of a function; return the new project.

        The function runs in the transaction and may run more than once; if it raises, nothing
        changes.
        """

        def write(tx: Transaction) -> Project:
            find_project(tx, user_id, project_id)
            row = tx.fetch_one(_LOCK_PROJECT, its_user=user_id, its_id=project_id)
            assert row is not None
            values = _row_values(change(_project_from_full_row(row)))
            new_values = {f"new_{name}": values[name] for name in _MUTABLE_COLUMNS}
            tx.execute(_UPDATE_PROJECT, its_user=user_id, its_id=project_id, **new_values)
            return find_project(tx, user_id, project_id)

        return await self._database.write(write)


def find_project(tx: Transaction, user_id: str, project_id: str) -> Project:
    """Return the user's project. Creates a missing default project, so only writers may call it."""
    row = tx.fetch_one(_SELECT_PROJECT, its_user=user_id, its_id=project_id)
    if row is None and project_id == DEFAULT_PROJECT:
        _insert_project(tx, Project(user_id, DEFAULT_PROJECT))
        row = tx.fetch_one(_SELECT_PROJECT, its_user=user_id, its_id=DEFAULT_PROJECT)
    if row is None:
        raise NotFound(f"there is no project {project_id!r:.80}.")
    return _project_from_full_row(row)


def project_from_row(user_id: str, project_id: str, row: Row) -> Project:
    """Return the project in a row of PROJECT_COLUMNS."""
    vault_path, code_paths, settings, created_at = row
    paths = () if code_paths == "[]" else tuple(from_json(code_paths))
    return Project(user_id, project_id, vault_path, paths, from_json(settings), created_at)


def _insert_project(tx: Transaction, project: Project) -> bool:
    """Insert a project; return False if it already exists."""
    if not project.user_id:
        raise BadRequest("a project needs a user.")
    return tx.execute(_INSERT_PROJECT, **_row_values(project)) == 1


def _row_values(project: Project) -> dict[str, Any]:
    return {
        "user_id": project.user_id,
        "id": project.id,
        "vault_path": project.vault_path,
        "code_paths_json": to_json(project.code_paths),
        "settings_json": to_json(project.settings),
        "created_at": project.created_at,
    }


def _project_from_full_row(row: Row) -> Project:
    return project_from_row(row[0], row[1], row[2:])
