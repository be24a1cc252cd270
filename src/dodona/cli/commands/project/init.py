"""`dodona init`: turn a folder of notes into a project."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from dodona.agent.views import ProjectViews
from dodona.app.config.config import Config
from dodona.cli.arguments import AsJson
from dodona.cli.client.connect import load_config_quietly
from dodona.cli.commands.project.config import ConfigFile, InjectedRedactor
from dodona.cli.project_file import (
    PROJECT_FILE,
    read_project_id,
    suggest_project_id,
    write_project_id,
)
from dodona.cli.store_access import open_store
from dodona.cli.terminal.output import print_json, print_text
from dodona.core.domain.projects import LOCAL_USER
from dodona.core.errors import BadRequest, NotFound
from dodona.net.redactor import Redactor


def init(
    folder: Annotated[Path, Parameter(help="Folder of notes.")] = Path(),
    /,
    *,
    project: Annotated[
        str | None, Parameter(help="Project name. Defaults to the folder name.")
    ] = None,
    json: AsJson = False,
    config: ConfigFile = None,
    redactor: InjectedRedactor,
) -> None:
    """Turn a folder of notes into a project."""
    loaded = load_config_quietly(config, redactor)
    path = _ensure_folder(folder)
    name = project or _existing_name(path) or suggest_project_id(path)
    document = asyncio.run(
        _ensure_project(loaded, redactor, name, path, is_explicit=project is not None)
    )
    write_project_id(path, name)
    if json:
        print_json(redactor.scrub_all(document))
        return
    print_text(f"Project {name}: questions are answered from the Markdown files in {path}.")
    print_text(f"Created {path / PROJECT_FILE}. Ask in this folder or below it:")
    print_text('  dodona ask "…"')


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
    config: Config, redactor: Redactor, name: str, folder: Path, *, is_explicit: bool
) -> dict[str, Any]:
    """Return the project with this name and folder; create it if needed."""
    async with open_store(config, redactor) as store:
        projects = ProjectViews(store)
        try:
            project = await projects.get(LOCAL_USER, name)
        except NotFound:
            return await projects.create(LOCAL_USER, {"id": name, "vault_path": str(folder)})
        vault: str | None = project["vault_path"]
        if vault is not None and await asyncio.to_thread(_is_same_folder, vault, folder):
            return project
        if vault is not None or not is_explicit:
            location = vault or "the default vault"
            raise BadRequest(
                f"project {name} already exists, with its notes in {location}.",
                hint="Choose another name: --project NAME",
            )
        return await projects.change(LOCAL_USER, name, {"vault_path": str(folder)})


def _is_same_folder(path: str, folder: Path) -> bool:
    return Path(path).resolve() == folder
