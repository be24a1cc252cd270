"""`dodona vault`: list, search and move the notes of a project.

It works directly on the files. A running gateway may use them at the same time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, TypeVar

from cyclopts import App, Parameter, validators

from dodona.app.projects.vaults import VaultIndexes
from dodona.cli.options import DEFAULTS, CommonOptions, Options, ProjectName, current_project
from dodona.cli.store_access import default_vault_folder, run_with_store
from dodona.cli.terminal.output import REDACTOR, format_minute
from dodona.core.domain.knowledge.notes import NoteHit, NoteMove
from dodona.core.domain.projects import LOCAL_USER
from dodona.store.store import Store
from dodona.tools.vault import Vault

app = App(name="vault", help="List, search and move notes.")

MAX_HIT_LINES = 12
T = TypeVar("T")

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
    folder: Folder = "", /, *, project: ProjectName = None, options: Options = DEFAULTS
) -> None:
    """List the notes of a folder and its subfolders."""
    notes = _with_vault(options, project, lambda vault: vault.list(folder))
    rows = [
        (
            note.path,
            format_minute(note.modified_at),
            " ".join([note.title, *(f"#{tag}" for tag in note.tags)]),
        )
        for note in notes
    ]
    document = {"notes": notes, "total": len(notes)}
    options.print_table(document, ("note", "modified", "title"), rows, empty="No notes yet.")


@app.command
def search(
    query: Annotated[str, Parameter(name="QUERY", help="Words to search for. Quote a phrase.")],
    /,
    *,
    limit: Limit = 5,
    project: ProjectName = None,
    options: Options = DEFAULTS,
) -> None:
    """Search the notes."""
    hits = _with_vault(options, project, lambda vault: vault.search(query, limit))
    text = "\n\n".join(map(_format_hit, hits)) or "No matches."
    options.print_result({"hits": hits}, text)


@app.command
def show(path: NotePath, /, *, project: ProjectName = None, options: Options = DEFAULTS) -> None:
    """Print a note."""
    note = _with_vault(options, project, lambda vault: vault.read(path))
    options.print_result(note, note.text.removesuffix("\n"))


@app.command
def backlinks(
    path: NotePath, /, *, project: ProjectName = None, options: Options = DEFAULTS
) -> None:
    """List the lines that link to a note."""
    links = _with_vault(options, project, lambda vault: vault.backlinks(path))
    lines = [f"{each.path}:{each.line}: {each.text.strip()}" for each in links]
    options.print_result({"backlinks": links}, "\n".join(lines) or "No notes link to it.")


@app.command
def tags(*, project: ProjectName = None, options: Options = DEFAULTS) -> None:
    """List tags, most frequent first."""
    counts = _with_vault(options, project, lambda vault: vault.tags())
    document = {"tags": [{"tag": tag, "notes": count} for tag, count in counts]}
    rows = [(f"#{tag}", str(count)) for tag, count in counts]
    options.print_table(document, ("tag", "notes"), rows, empty="No tags yet.")


@app.command
def move(
    path: NotePath,
    to: Annotated[str, Parameter(name="TO", help="New path.")],
    /,
    *,
    project: ProjectName = None,
    options: Options = DEFAULTS,
) -> None:
    """Move a note and update all links to it."""
    _print_move(options, _with_vault(options, project, lambda vault: vault.move(path, to)))


@app.command
def moves(*, limit: Limit = 20, project: ProjectName = None, options: Options = DEFAULTS) -> None:
    """List moves that can be undone, newest first."""
    history = _with_vault(options, project, lambda vault: vault.moves(limit))
    rows = [
        (str(m.id), format_minute(m.moved_at), str(len(m.relinked)), f"{m.path} → {m.to}")
        for m in history
    ]
    options.print_table(
        {"moves": history},
        ("move", "time", "links", "note"),
        rows,
        empty="No moves to undo.",
    )


@app.command
def undo(
    number: Annotated[
        int | None, Parameter(name="MOVE", help="Move ID. Defaults to the latest move.")
    ] = None,
    /,
    *,
    project: ProjectName = None,
    options: Options = DEFAULTS,
) -> None:
    """Undo a move and restore the links."""
    _print_move(options, _with_vault(options, project, lambda vault: vault.undo(number)))


@app.command
def index(
    folder: Folder = "",
    /,
    *,
    title: Annotated[
        str,
        Parameter(show_default=False, help="Title of a new index. Defaults to the folder name."),
    ] = "",
    project: ProjectName = None,
    options: Options = DEFAULTS,
) -> None:
    """Write an index.md that links to each note in a folder."""
    written = _with_vault(options, project, lambda vault: vault.create_index(folder, title=title))
    options.print_result(written, f"{written.path}: {written.outcome}, {written.lines} lines.")


def _with_vault(
    options: CommonOptions, project: str | None, action: Callable[[Vault], Awaitable[T]]
) -> T:
    config = options.load_config()
    project_id = current_project(project)

    async def run(store: Store) -> T:
        folder = await asyncio.to_thread(default_vault_folder, config, REDACTOR)
        vaults = VaultIndexes(store.projects, default=folder, home=config.home)
        return await action(await vaults(LOCAL_USER, project_id))

    return run_with_store(config, run)


def _print_move(options: CommonOptions, moved: NoteMove) -> None:
    count = len(moved.relinked)
    links = f"links updated in {count} note{'s' * (count != 1)}" if count else "no links to update"
    undo_line = f"To undo: dodona vault undo {moved.id}"
    options.print_result(moved, f"{moved.path} → {moved.to}: {links}.\n{undo_line}")


def _format_hit(hit: NoteHit) -> str:
    title = " > ".join(filter(None, (hit.title, hit.headings)))
    lines = hit.text.split("\n")
    shown = [f"    {line}".rstrip() for line in lines[:MAX_HIT_LINES]]
    more = ["    …"] if len(lines) > MAX_HIT_LINES else []
    return "\n".join([f"{hit.path}:{hit.first}-{hit.last}  {title}", *shown, *more])
