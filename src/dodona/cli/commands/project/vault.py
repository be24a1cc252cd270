"""`dodona vault`: the notes of a project, looked at and put in order.

It works on the files themselves, beside a gateway that uses them too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, TypeVar

from cyclopts import App, Parameter, validators

from dodona.agent.views.documents import moved_json, note_json
from dodona.app.config.config import Config
from dodona.app.projects.vaults import VaultIndexes
from dodona.cli.arguments import AsJson
from dodona.cli.client.connect import load_config_quietly
from dodona.cli.commands.project.config import ConfigFile, InjectedRedactor
from dodona.cli.project_file import project_of
from dodona.cli.store_access import default_vault_folder, open_store
from dodona.cli.terminal.output import format_columns, print_json, print_text
from dodona.cli.terminal.screen import strip_control_chars
from dodona.core.domain.knowledge.notes import NoteHit, NoteMove, NoteWriteResult
from dodona.core.domain.projects import LOCAL_USER
from dodona.net.redactor import Redactor
from dodona.tools.vault import Vault

app = App(name="vault", help="Look at the notes, and undo moves.")

MAX_HIT_LINES = 12  # of a hit
T = TypeVar("T")

Project = Annotated[
    str | None, Parameter(name="--project", help="Which; by default this folder's.")
]
Limit = Annotated[
    int, Parameter(help="How many at most.", validator=validators.Number(gte=1, lte=1_000))
]
NotePath = Annotated[str, Parameter(name="PATH", help="A note, relative to the vault.")]
Folder = Annotated[str, Parameter(name="FOLDER", help="All of the vault by default.")]


@app.command(name="list")
def list_notes(
    folder: Folder = "",
    /,
    *,
    project: Project = None,
    json: AsJson = False,
    config: ConfigFile = None,
    redactor: InjectedRedactor,
) -> None:
    """List the notes of a folder and below."""
    found = _with_vault(config, redactor, project, lambda vault: vault.list(folder))
    if json:
        shown = {"notes": [note_json(note) for note in found], "total": len(found)}
        print_json(redactor.scrub_all(shown))
    elif not found:
        print_text("There are no notes yet.")
    else:
        rows = [
            (
                note.path,
                _format_minute(note.modified),
                " ".join([note.title, *_format_tags(note.tags)]),
            )
            for note in found
        ]
        print_text(
            redactor.scrub(
                strip_control_chars(format_columns([("note", "changed", "title"), *rows]))
            )
        )


@app.command
def search(
    query: Annotated[str, Parameter(name="QUERY", help="Words; quotes keep them together.")],
    /,
    *,
    limit: Limit = 5,
    project: Project = None,
    json: AsJson = False,
    config: ConfigFile = None,
    redactor: InjectedRedactor,
) -> None:
    """Search the notes by words."""
    hits = _with_vault(config, redactor, project, lambda vault: vault.search(query, limit))
    if json:
        print_json(redactor.scrub_all({"hits": [asdict(hit) for hit in hits]}))
    else:
        told = "\n\n".join(map(_format_hit, hits)) or "Nothing found."
        print_text(redactor.scrub(strip_control_chars(told)))


@app.command
def show(
    path: NotePath,
    /,
    *,
    project: Project = None,
    json: AsJson = False,
    config: ConfigFile = None,
    redactor: InjectedRedactor,
) -> None:
    """Show a note as it is."""
    note = _with_vault(config, redactor, project, lambda vault: vault.read(path))
    if json:
        print_json(redactor.scrub_all(asdict(note)))
    else:
        print_text(
            redactor.scrub(strip_control_chars(note.text)),
            end="" if note.text.endswith("\n") else "\n",
        )


@app.command
def backlinks(
    path: NotePath,
    /,
    *,
    project: Project = None,
    json: AsJson = False,
    config: ConfigFile = None,
    redactor: InjectedRedactor,
) -> None:
    """List the lines that link to a note."""
    found = _with_vault(config, redactor, project, lambda vault: vault.backlinks(path))
    if json:
        print_json(redactor.scrub_all({"backlinks": [asdict(each) for each in found]}))
    else:
        lines = [f"{each.path}:{each.line}: {each.text.strip()}" for each in found]
        print_text(redactor.scrub(strip_control_chars("\n".join(lines) or "No note links to it.")))


@app.command
def tags(
    *,
    project: Project = None,
    json: AsJson = False,
    config: ConfigFile = None,
    redactor: InjectedRedactor,
) -> None:
    """List the tags, the most frequent first."""
    found = _with_vault(config, redactor, project, lambda vault: vault.tags())
    if json:
        told = [{"tag": tag, "notes": count} for tag, count in found]
        print_json(redactor.scrub_all({"tags": told}))
    elif not found:
        print_text("There are no tags yet.")
    else:
        rows = [(f"#{tag}", str(count)) for tag, count in found]
        print_text(redactor.scrub(strip_control_chars(format_columns([("tag", "notes"), *rows]))))


@app.command
def move(
    path: NotePath,
    to: Annotated[str, Parameter(name="TO", help="Its new path.")],
    /,
    *,
    project: Project = None,
    json: AsJson = False,
    config: ConfigFile = None,
    redactor: InjectedRedactor,
) -> None:
    """Move a note, and change every link to it."""
    made = _with_vault(config, redactor, project, lambda vault: vault.move(path, to))
    _print_move(made, json=json, redactor=redactor)


@app.command
def moves(
    *,
    limit: Limit = 20,
    project: Project = None,
    json: AsJson = False,
    config: ConfigFile = None,
    redactor: InjectedRedactor,
) -> None:
    """List the moves that can be undone, the newest first."""
    found = _with_vault(config, redactor, project, lambda vault: vault.moves(limit))
    if json:
        print_json(redactor.scrub_all({"moves": [moved_json(each) for each in found]}))
    elif not found:
        print_text("There are no moves to undo.")
    else:
        rows = [
            (str(m.id), _format_minute(m.moved_at), str(len(m.relinked)), f"{m.path} → {m.to}")
            for m in found
        ]
        print_text(
            redactor.scrub(
                strip_control_chars(format_columns([("move", "made", "links", "note"), *rows]))
            )
        )


@app.command
def undo(
    number: Annotated[
        int | None, Parameter(name="MOVE", help="Its number; the latest by default.")
    ] = None,
    /,
    *,
    project: Project = None,
    json: AsJson = False,
    config: ConfigFile = None,
    redactor: InjectedRedactor,
) -> None:
    """Take a move back, with the links as they were."""
    made = _with_vault(config, redactor, project, lambda vault: vault.undo(number))
    _print_move(made, json=json, redactor=redactor)


@app.command
def index(
    folder: Folder = "",
    /,
    *,
    title: Annotated[str, Parameter(help="Of a new index; by default the folder's name.")] = "",
    project: Project = None,
    json: AsJson = False,
    config: ConfigFile = None,
    redactor: InjectedRedactor,
) -> None:
    """Write index.md into a folder, with a link to each note below it."""

    def create(vault: Vault) -> Awaitable[NoteWriteResult]:
        return vault.create_index(folder, title=title)

    written = _with_vault(config, redactor, project, create)
    if json:
        print_json(redactor.scrub_all(asdict(written)))
    else:
        print_text(
            redactor.scrub(
                strip_control_chars(f"{written.path}: {written.outcome}, {written.lines} lines.")
            )
        )


def _with_vault(
    file: Path | None,
    redactor: Redactor,
    project: str | None,
    action: Callable[[Vault], Awaitable[T]],
) -> T:
    config = load_config_quietly(file, redactor)
    project_id = project or project_of(Path.cwd())
    return asyncio.run(_run_with_vault(config, redactor, project_id, action))


async def _run_with_vault(
    config: Config, redactor: Redactor, project_id: str, action: Callable[[Vault], Awaitable[T]]
) -> T:
    async with open_store(config, redactor) as store:
        folder = await asyncio.to_thread(default_vault_folder, config, redactor)
        vaults = VaultIndexes(store.projects, default=folder, home=config.home)
        return await action(await vaults(LOCAL_USER, project_id))


def _print_move(moved: NoteMove, *, json: bool, redactor: Redactor) -> None:
    if json:
        print_json(redactor.scrub_all(moved_json(moved)))
        return
    count = len(moved.relinked)
    links = f"links changed in {count} note{'s' * (count != 1)}" if count else "no link to change"
    print_text(redactor.scrub(strip_control_chars(f"{moved.path} → {moved.to}: {links}.")))
    print_text(f"To take it back: dodona vault undo {moved.id}")


def _format_hit(hit: NoteHit) -> str:
    title = " > ".join(filter(None, (hit.title, hit.headings)))
    lines = hit.text.split("\n")
    shown = [f"    {line}".rstrip() for line in lines[:MAX_HIT_LINES]]
    more = ["    …"] if len(lines) > MAX_HIT_LINES else []
    return "\n".join([f"{hit.path}:{hit.first}-{hit.last}  {title}", *shown, *more])


def _format_tags(tag_names: tuple[str, ...]) -> list[str]:
    return [f"#{tag}" for tag in tag_names]


def _format_minute(timestamp: float) -> str:
    """As far as people want to know it; in UTC."""
    return datetime.fromtimestamp(timestamp, UTC).strftime("%Y-%m-%d %H:%M")
