"""`dodona init`: a folder of notes becomes a project."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from dodona.agent.views import ProjectViews
from dodona.app.config.config import Config
from dodona.cli.arguments import AsJson
from dodona.cli.client.connect import quiet_config
from dodona.cli.commands.project.config import ConfigFile, Hidden
from dodona.cli.project_file import PLACE, named_in, suggested, write_name
from dodona.cli.store_access import opened_store
from dodona.cli.terminal.output import document, say
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
    redactor: Hidden,
) -> None:
    """Make a folder a project: questions asked in it or below are answered from its notes."""
    loaded = quiet_config(config, redactor)
    place = _made(folder)
    name = project or _named_before(place) or suggested(place)
    made = asyncio.run(_project(loaded, redactor, name, place, is_named=project is not None))
    write_name(place, name)
    if json:
        document(redactor.scrub_all(made))
        return
    say(f"Project {name}: questions are answered from the Markdown files in {place}.")
    say(f"{place / PLACE} says so; ask in this folder or below it:")
    say('  dodona ask "…"')


def _made(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadRequest(f"{folder} cannot be made a folder: {error.strerror}.") from error
    return folder.resolve()


def _named_before(folder: Path) -> str:
    """The name that an earlier `init` left here; a file that is damaged is written anew."""
    try:
        return named_in(folder)
    except BadRequest:
        return ""


async def _project(
    config: Config, redactor: Redactor, name: str, folder: Path, *, is_named: bool
) -> dict[str, Any]:
    """The project of this name and folder; made if there is none."""
    async with opened_store(config, redactor) as store:
        projects = ProjectViews(store)
        try:
            known = await projects.get(LOCAL_USER, name)
        except NotFound:
            return await projects.create(LOCAL_USER, {"id": name, "vault_path": str(folder)})
        place: str | None = known["vault_path"]
        if place is not None and _is_same(place, folder):
            return known
        if place is not None or not is_named:
            at = place or "Dodona's own folder"
            raise BadRequest(
                f"there is a project {name} already: its notes are in {at}.",
                hint="Choose another name: --project NAME",
            )
        return await projects.change(LOCAL_USER, name, {"vault_path": str(folder)})


def _is_same(place: str, folder: Path) -> bool:
    return Path(place).resolve() == folder
