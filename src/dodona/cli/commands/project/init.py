"""`dodona init`: a folder of notes becomes a project."""

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
    folder: Annotated[Path, Parameter(help="The folder that the notes are in.")] = Path(),
    /,
    *,
    project: Annotated[
        str | None, Parameter(help="The project's name; by default the folder's.")
    ] = None,
    json: AsJson = False,
    config: ConfigFile = None,
    redactor: InjectedRedactor,
) -> None:
    """Make a folder a project: questions asked in it or below are answered from its notes."""
    loaded = load_config_quietly(config, redactor)
    place = _ensure_folder(folder)
    name = project or _existing_name(place) or suggest_project_id(place)
    made = asyncio.run(
        _ensure_project(loaded, redactor, name, place, is_explicit=project is not None)
    )
    write_project_id(place, name)
    if json:
        print_json(redactor.scrub_all(made))
        return
    print_text(f"Project {name}: questions are answered from the Markdown files in {place}.")
    print_text(f"{place / PROJECT_FILE} says so; ask in this folder or below it:")
    print_text('  dodona ask "…"')


def _ensure_folder(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadRequest(f"{folder} cannot be made a folder: {error.strerror}.") from error
    return folder.resolve()


def _existing_name(folder: Path) -> str:
    """The name that an earlier `init` left here; a file that is damaged is written anew."""
    try:
        return read_project_id(folder)
    except BadRequest:
        return ""


async def _ensure_project(
    config: Config, redactor: Redactor, name: str, folder: Path, *, is_explicit: bool
) -> dict[str, Any]:
    """The project of this name and folder; made if there is none."""
    async with open_store(config, redactor) as store:
        projects = ProjectViews(store)
        try:
            known = await projects.get(LOCAL_USER, name)
        except NotFound:
            return await projects.create(LOCAL_USER, {"id": name, "vault_path": str(folder)})
        place: str | None = known["vault_path"]
        if place is not None and _is_same_folder(place, folder):
            return known
        if place is not None or not is_explicit:
            at = place or "Dodona's own folder"
            raise BadRequest(
                f"there is a project {name} already: its notes are in {at}.",
                hint="Choose another name: --project NAME",
            )
        return await projects.change(LOCAL_USER, name, {"vault_path": str(folder)})


def _is_same_folder(path: str, folder: Path) -> bool:
    return Path(path).resolve() == folder
