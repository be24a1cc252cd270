"""`dodona vault`: list, search and move the notes of a project, and undo changes.

It works directly on the files. A running gateway may use them at the same time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, TypeVar

from cyclopts import App, Parameter, validators

from dodona.app.projects.vaults import VaultIndexes, untrusted_notes
from dodona.cli.arguments import flag
from dodona.cli.options import DEFAULTS, CommonOptions, Options, ProjectName, current_project
from dodona.cli.store_access import default_vault_folder, run_with_store
from dodona.cli.terminal.keyboard import REVIEW_HINT, confirm, require_terminal
from dodona.cli.terminal.note_diff import diff_versions, print_diff
from dodona.cli.terminal.output import REDACTOR, format_minute, print_note
from dodona.cli.terminal.screen import strip_control_chars
from dodona.core.domain.knowledge.notes import NoteHistoryEntry, NoteHit, NoteMove
from dodona.core.domain.projects import LOCAL_USER
from dodona.core.domain.trust import describe_marks
from dodona.store.store import Store
from dodona.tools.vault import ProjectNotes

app = App(name="vault", help="List, search and move notes. Compare and undo changes.")

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
            " ".join(
                [note.title, *(f"#{tag}" for tag in note.tags), *["[untrusted]"] * bool(note.marks)]
            ),
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
    document = {"tags": counts}
    rows = [(f"#{each.tag}", str(each.notes)) for each in counts]
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
def history(
    path: Annotated[
        str | None, Parameter(name="PATH", help="Path of a note. Defaults to all notes.")
    ] = None,
    /,
    *,
    limit: Limit = 20,
    project: ProjectName = None,
    options: Options = DEFAULTS,
) -> None:
    """List the changes of notes that Dodona made or found, newest first."""
    entries = _with_vault(options, project, lambda vault: vault.history(path, limit))
    rows = [
        (
            str(entry.id),
            format_minute(entry.written_at),
            _format_action(entry),
            entry.author or "-",
            str(entry.size),
            " ".join(
                [
                    f"{entry.from_path} → {entry.path}" if entry.from_path else entry.path,
                    *["[current]"] * entry.is_current,
                    *["[untrusted]"] * bool(entry.marks),
                ]
            ),
        )
        for entry in entries
    ]
    heading = ("id", "time", "action", "author", "size", "note")
    options.print_table({"history": entries}, heading, rows, empty="No changes yet.")


@app.command
def diff(
    path: NotePath,
    old: Annotated[
        int | None,
        Parameter(name="FROM", help="ID of the older version. Defaults to the last change."),
    ] = None,
    new: Annotated[
        int | None, Parameter(name="TO", help="ID of the newer version. Defaults to the file.")
    ] = None,
    /,
    *,
    project: ProjectName = None,
    options: Options = DEFAULTS,
) -> None:
    """Compare two versions of a note, or a version with the file."""
    lines = _with_vault(options, project, lambda vault: diff_versions(vault, path, old, new))
    if options.json or not lines:
        options.print_result({"diff": "\n".join(lines)}, "No differences.")
    else:
        print_diff(lines)


@app.command
def undo(
    number: Annotated[
        int | None,
        Parameter(
            name="ID",
            help="ID of a change, from `dodona vault history`. Defaults to the latest change that "
            "is not undone.",
        ),
    ] = None,
    /,
    *,
    project: ProjectName = None,
    options: Options = DEFAULTS,
) -> None:
    """Undo a write or a move, unless the note has changed since. An undo can be undone too."""
    undone = _with_vault(options, project, lambda vault: vault.undo(number))
    text = f"{undone.path}: {undone.outcome}."
    if undone.outcome == "moved":
        text = f"{undone.path} → {undone.to}: {_format_links(len(undone.relinked))}."
    options.print_result(undone, f"{text}\nTo undo: dodona vault undo {undone.id}")


@app.command
def review(
    path: NotePath,
    /,
    *,
    yes: Annotated[bool, flag("Clear the marks without asking.")] = False,
    project: ProjectName = None,
    options: Options = DEFAULTS,
) -> None:
    """Show what untrusted text a note contains, and clear its marks.

    Until then, a run that reads the note needs your approval for calls that write or
    send. A marked paragraph of 40 characters or more is cleared in all notes.
    """
    note = _with_vault(options, project, lambda vault: vault.marked_text(path))
    if not note.marks:
        options.print_result(note, f"{note.path} contains no untrusted text.")
        return
    sources = strip_control_chars(describe_marks(note.marks))
    if not yes:
        require_terminal(f"{note.path} contains untrusted text ({sources}).", hint=REVIEW_HINT)
        for part in note.parts:
            print_note(strip_control_chars(f"{describe_marks(part.marks)}\n    {part.text}\n"))
        confirm("Allow runs that read it to write and send without approval?", "nothing changed.")
    reviewed = _with_vault(
        options, project, lambda vault: vault.review(note.path, version=note.version)
    )
    options.print_result(reviewed, f"Reviewed: {sources}. The marks are cleared.")


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
    options: CommonOptions, project: str | None, action: Callable[[ProjectNotes], Awaitable[T]]
) -> T:
    config = options.load_config()
    project_id = current_project(project)

    async def run(store: Store) -> T:
        folder = await asyncio.to_thread(default_vault_folder, config, REDACTOR)
        vaults = VaultIndexes(
            store, default=folder, home=config.home, untrusted=untrusted_notes(config)
        )
        return await action(await vaults(LOCAL_USER, project_id))

    return run_with_store(config, run)


def _print_move(options: CommonOptions, moved: NoteMove) -> None:
    links = _format_links(len(moved.relinked))
    undo_line = f"To undo: dodona vault undo {moved.id}"
    options.print_result(moved, f"{moved.path} → {moved.to}: {links}.\n{undo_line}")


def _format_links(count: int) -> str:
    return f"links updated in {count} note{'s' * (count != 1)}" if count else "no links to update"


def _format_action(entry: NoteHistoryEntry) -> str:
    return entry.action if entry.undoes is None else f"{entry.action} {entry.undoes}"


def _format_hit(hit: NoteHit) -> str:
    title = " > ".join(filter(None, (hit.title, hit.headings)))
    lines = hit.text.split("\n")
    shown = [f"    {line}".rstrip() for line in lines[:MAX_HIT_LINES]]
    more = ["    …"] if len(lines) > MAX_HIT_LINES else []
    return "\n".join([f"{hit.path}:{hit.first}-{hit.last}  {title}", *shown, *more])
