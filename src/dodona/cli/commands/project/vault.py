"""`dodona vault`: list, search and move the notes of a project.

It works directly on the files. A running gateway may use them at the same time.
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

app = App(name="vault", help="List, search and move notes.")

MAX_HIT_LINES = 12
T = TypeVar("T")

Project = Annotated[
    str | None,
    Parameter(name="--project", help="Project. Defaults to the project of the current folder."),
]
Limit = Annotated[
    int, Parameter(help="Maximum number of results.", validator=validators.Number(gte=1, lte=1_000))
]
NotePath = Annotated[str, Parameter(name="PATH", help="Path of a note, relative to the vault.")]
Folder = Annotated[
    str,
    Parameter(
        name="FOLDER", show_default=False, help="Folder in the vault. Defaults to the whole vault."
    ),
]


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
    """List the notes of a folder and its subfolders."""
    notes = _with_vault(config, redactor, project, lambda vault: vault.list(folder))
    if json:
        document = {"notes": [note_json(note) for note in notes], "total": len(notes)}
        print_json(redactor.scrub_all(document))
    elif not notes:
        print_text("No notes yet.")
    else:
        rows = [
            (
                note.path,
                _format_minute(note.modified),
                " ".join([note.title, *_format_tags(note.tags)]),
            )
            for note in notes
        ]
        print_text(
            redactor.scrub(
                strip_control_chars(format_columns([("note", "modified", "title"), *rows]))
            )
        )


@app.command
def search(
    query: Annotated[str, Parameter(name="QUERY", help="Words to search for. Quote a phrase.")],
    /,
    *,
    limit: Limit = 5,
    project: Project = None,
    json: AsJson = False,
    config: ConfigFile = None,
    redactor: InjectedRedactor,
) -> None:
    """Search the notes."""
    hits = _with_vault(config, redactor, project, lambda vault: vault.search(query, limit))
    if json:
        print_json(redactor.scrub_all({"hits": [asdict(hit) for hit in hits]}))
    else:
        text = "\n\n".join(map(_format_hit, hits)) or "No matches."
        print_text(redactor.scrub(strip_control_chars(text)))


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
    """Print a note."""
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
    links = _with_vault(config, redactor, project, lambda vault: vault.backlinks(path))
    if json:
        print_json(redactor.scrub_all({"backlinks": [asdict(each) for each in links]}))
    else:
        lines = [f"{each.path}:{each.line}: {each.text.strip()}" for each in links]
        print_text(redactor.scrub(strip_control_chars("\n".join(lines) or "No notes link to it.")))


@app.command
def tags(
    *,
    project: Project = None,
    json: AsJson = False,
    config: ConfigFile = None,
    redactor: InjectedRedactor,
) -> None:
    """List tags, most frequent first."""
    counts = _with_vault(config, redactor, project, lambda vault: vault.tags())
    if json:
        documents = [{"tag": tag, "notes": count} for tag, count in counts]
        print_json(redactor.scrub_all({"tags": documents}))
    elif not counts:
        print_text("No tags yet.")
    else:
        rows = [(f"#{tag}", str(count)) for tag, count in counts]
        print_text(redactor.scrub(strip_control_chars(format_columns([("tag", "notes"), *rows]))))


@app.command
def move(
    path: NotePath,
    to: Annotated[str, Parameter(name="TO", help="New path.")],
    /,
    *,
    project: Project = None,
    json: AsJson = False,
    config: ConfigFile = None,
    redactor: InjectedRedactor,
) -> None:
    """Move a note and update all links to it."""
    result = _with_vault(config, redactor, project, lambda vault: vault.move(path, to))
    _print_move(result, json=json, redactor=redactor)


@app.command
def moves(
    *,
    limit: Limit = 20,
    project: Project = None,
    json: AsJson = False,
    config: ConfigFile = None,
    redactor: InjectedRedactor,
) -> None:
    """List moves that can be undone, newest first."""
    history = _with_vault(config, redactor, project, lambda vault: vault.moves(limit))
    if json:
        print_json(redactor.scrub_all({"moves": [moved_json(each) for each in history]}))
    elif not history:
        print_text("No moves to undo.")
    else:
        rows = [
            (str(m.id), _format_minute(m.moved_at), str(len(m.relinked)), f"{m.path} → {m.to}")
            for m in history
        ]
        print_text(
            redactor.scrub(
                strip_control_chars(format_columns([("move", "time", "links", "note"), *rows]))
            )
        )


@app.command
def undo(
    number: Annotated[
        int | None, Parameter(name="MOVE", help="Move ID. Defaults to the latest move.")
    ] = None,
    /,
    *,
    project: Project = None,
    json: AsJson = False,
    config: ConfigFile = None,
    redactor: InjectedRedactor,
) -> None:
    """Undo a move and restore the links."""
    result = _with_vault(config, redactor, project, lambda vault: vault.undo(number))
    _print_move(result, json=json, redactor=redactor)


@app.command
def index(
    folder: Folder = "",
    /,
    *,
    title: Annotated[
        str,
        Parameter(show_default=False, help="Title of a new index. Defaults to the folder name."),
    ] = "",
    project: Project = None,
    json: AsJson = False,
    config: ConfigFile = None,
    redactor: InjectedRedactor,
) -> None:
    """Write an index.md that links to each note in a folder."""

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
    links = f"links updated in {count} note{'s' * (count != 1)}" if count else "no links to update"
    print_text(redactor.scrub(strip_control_chars(f"{moved.path} → {moved.to}: {links}.")))
    print_text(f"To undo: dodona vault undo {moved.id}")


def _format_hit(hit: NoteHit) -> str:
    title = " > ".join(filter(None, (hit.title, hit.headings)))
    lines = hit.text.split("\n")
    shown = [f"    {line}".rstrip() for line in lines[:MAX_HIT_LINES]]
    more = ["    …"] if len(lines) > MAX_HIT_LINES else []
    return "\n".join([f"{hit.path}:{hit.first}-{hit.last}  {title}", *shown, *more])


def _format_tags(tag_names: tuple[str, ...]) -> list[str]:
    return [f"#{tag}" for tag in tag_names]


def _format_minute(timestamp: float) -> str:
    """Format a UTC timestamp to the minute."""
    return datetime.fromtimestamp(timestamp, UTC).strftime("%Y-%m-%d %H:%M")
