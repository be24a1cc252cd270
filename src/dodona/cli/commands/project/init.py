"""`dodona init`: turn a folder of notes into a project."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from dodona.agent.views.projects import (
    NewProject,
    ProjectChange,
    ProjectDocument,
    ProjectViews,
)
from dodona.cli.options import DEFAULTS, Options
from dodona.cli.project_file import (
    PROJECT_FILE,
    read_project_id,
    suggest_project_id,
    write_project_id,
)
from dodona.cli.store_access import run_with_store
from dodona.core.domain.projects import LOCAL_USER
from dodona.core.errors import BadRequest, NotFound


def init(
    folder: Annotated[Path, Parameter(help="Folder of notes.")] = Path(),
    /,
    *,
    project: Annotated[
        str | None, Parameter(help="Project name. Defaults to the folder name.")
    ] = None,
    options: Options = DEFAULTS,
) -> None:
    """Turn a folder of notes into a project."""
    config = options.load_config()
    path = _ensure_folder(folder)
    name = project or _existing_name(path) or suggest_project_id(path)
    document = run_with_store(
        config,
        lambda store: _ensure_project(
            ProjectViews(store), name, path, is_explicit=project is not None
        ),
    )
    write_project_id(path, name)
    options.print_result(
        document,
        f"Project {name}: questions are answered from the Markdown files in {path}.\n"
        f"Created {path / PROJECT_FILE}. Ask in this folder or below it:\n"
        '  dodona ask "…"',
    )


def _ensure_folder(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadRequest(f"cannot create the folder {folder}: {error.strerror}.") from error
    return folder.resolve()


def _existing_name(folder: Path) -> str:
    """Return the name in an existing project file. A damaged file is ignored and replaced."""
    try:
        return read_project_id(folder)
    except BadRequest:
        return ""


async def _ensure_project(
    projects: ProjectViews, name: str, folder: Path, *, is_explicit: bool
) -> ProjectDocument:
    """Return the project with this name and folder; create it if needed."""
    try:
        project = await projects.get(LOCAL_USER, name)
    except NotFound:
        return await projects.create(LOCAL_USER, NewProject(id=name, vault_path=str(folder)))
    vault = project.vault_path
    if vault is not None and await asyncio.to_thread(_is_same_folder, vault, folder):
        return project
    if vault is not None or not is_explicit:
        location = vault or "the default vault"
        raise BadRequest(
            f"project {name} already exists, with its notes in {location}.",
            hint="Choose another name: --project NAME",
        )
    return await projects.change(LOCAL_USER, name, ProjectChange(vault_path=str(folder)))


def _is_same_folder(path: str, folder: Path) -> bool:
    return Path(path).resolve() == folder
