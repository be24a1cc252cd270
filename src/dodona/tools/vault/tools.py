"""The vault tools that a model can call.

| tool               | effect                                                                     |
|--------------------|----------------------------------------------------------------------------|
| vault_search       | returns sections by their words, each headed by `path:first-last  title`   |
| vault_read         | returns lines of a note, headed by `path:first-last  title (version …)`    |
| vault_list         | returns the content of a folder, one line per note and subfolder           |
| vault_tags         | returns every tag with its number of notes                                 |
| vault_backlinks    | returns the lines that link to a note, as `path:line: text`                |
| vault_write        | creates a note or replaces it as a whole                                   |
| vault_move         | moves a note and updates every link to it; a move can be undone            |
| vault_create_index | writes `index.md` in a folder, with a link and a summary for each note     |

The effects of the last three are keyed: a call that is repeated after a crash succeeds without
writing again. To replace an existing note, a call must pass the version that was read, and the
model must have seen all lines of that version, so no edit and no text is lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeAlias

from dodona.core.domain.knowledge.notes import (
    Backlink,
    NoteAuthor,
    NoteHit,
    NoteMove,
    Notes,
    NotesLoader,
    NoteSummary,
    NoteTag,
    NoteWriteResult,
)
from dodona.core.domain.trust import Marks, merge_marks
from dodona.core.errors import NotFound, ToolRetry
from dodona.core.messages import ToolSpec
from dodona.core.ports.journal import Effect
from dodona.core.ports.tools import (
    ShownLines,
    SourceReference,
    ToolCategory,
    ToolContext,
    ToolOutput,
)
from dodona.tools.line_ranges import LINE_RANGE, find_unseen_lines, format_rest, select_lines
from dodona.tools.presentation import (
    MAX_EXCERPT_CHARS,
    cut_text,
    format_block,
    integer,
    string,
    tool_spec,
)
from dodona.tools.registry import DEFAULT_SCOPE, DEFAULT_TIMEOUT_SECONDS, ToolRegistry
from dodona.tools.vault.index.searcher import MAX_QUERY_CHARS
from dodona.tools.vault.notes.files import MAX_NOTE_BYTES
from dodona.tools.vault.notes.paths import folder_parts

MAX_SECTION_CHARS: Final = 2_000
MAX_LISTED: Final = 300  # notes and folders, or tags
MAX_BACKLINKS: Final = 100
MAX_NAMED_NOTES: Final = 20  # changed notes that are listed
MAX_UNSEEN_RANGES: Final = 5  # in an error

_NOTE: Final = string("The note, relative to the vault, such as 'notes/plan.md'.", minLength=1)
_FOLDER: Final = string(
    "Relative to the vault, such as 'notes'; empty for the whole vault.", default=""
)

SEARCH: Final = tool_spec(
    "vault_search",
    "Search the project's notes. Returns the best sections as blocks: a line "
    "'path:first-last  title > heading', then the text of these lines, indented. Put a phrase in "
    "quotes. Read more of the note with vault_read.",
    required=("query",),
    query=string("The search terms; rare words work best.", minLength=1, maxLength=MAX_QUERY_CHARS),
    limit=integer("The maximum number of sections to return.", minimum=1, maximum=20, default=5),
)
READ: Final = tool_spec(
    "vault_read",
    "Read a note, or some of its lines. Returns a line 'path:first-last  title (version …)', then "
    "these lines, unchanged. Pass the version to vault_write when you change the note.",
    required=("path",),
    path=_NOTE,
    **LINE_RANGE,
)
LIST: Final = tool_spec(
    "vault_list",
    "List the notes and subfolders of a folder in the vault, one line each: "
    "'folder/  (number of notes)' or 'path  title  #tags'.",
    folder=_FOLDER,
)
TAGS: Final = tool_spec(
    "vault_tags",
    "List the tags of the notes, most frequent first, one line each: '#tag  (number of notes)'. "
    "To find the notes with a tag, search for its name.",
)
BACKLINKS: Final = tool_spec(
    "vault_backlinks",
    "List the lines that link to a note, as 'path:line: text'.",
    required=("path",),
    path=_NOTE,
)
WRITE: Final = tool_spec(
    "vault_write",
    "Write a note: 'content' becomes the whole note. A new note and its folders are created. An "
    "existing note is replaced only if you pass the 'version' that vault_read returned, and have "
    "read all its lines, in one or several calls. Keep its content.",
    required=("path", "content"),
    path=_NOTE,
    content=string(
        "Markdown, optionally with front matter (title, tags).", maxLength=MAX_NOTE_BYTES
    ),
    version=string(
        "The version of the existing note, from vault_read; empty for a new note.",
        maxLength=64,
        default="",
    ),
)
MOVE: Final = tool_spec(
    "vault_move",
    "Move or rename a note. Every link to it in other notes is updated; missing folders are "
    "created. The user can undo the move.",
    required=("path", "to"),
    path=string("The note, relative to the vault, such as 'plan.md'.", minLength=1),
    to=string("The new path with the name, such as 'projects/garden/plan.md'.", minLength=1),
)
CREATE_INDEX: Final = tool_spec(
    "vault_create_index",
    "Write 'index.md' in a folder of the vault: a link to each note in the folder and its "
    "subfolders, with its first sentence. Call it again to update the list; other text is kept.",
    folder=_FOLDER,
    title=string(
        "The heading of a new index; default: the folder's name.", maxLength=120, default=""
    ),
)


async def _search(notes: Notes, arguments: Mapping[str, Any], _: ToolContext) -> ToolOutput:
    hits = await notes.search(arguments["query"], arguments["limit"])
    versions = await notes.versions(tuple({hit.path for hit in hits}))
    text = "\n\n".join(map(_format_hit, hits)) or "Nothing found."
    return ToolOutput(
        text + _format_indexing_note(notes),
        tuple(
            SourceReference(
                hit.path,
                hit.title,
                f"{hit.first}–{hit.last}",
                hit.text[:MAX_EXCERPT_CHARS],
                version=versions.get(hit.path, ""),
            )
            for hit in hits
        ),
        entry_count=len(hits),
        scores=tuple(hit.score for hit in hits),
        marks=_merge_marks(hits),
    )


async def _read(notes: Notes, arguments: Mapping[str, Any], _: ToolContext) -> ToolOutput:
    note = await notes.read(arguments["path"])
    lines = note.text.removesuffix("\n").split("\n")
    found = select_lines(note.path, lines, first=arguments["first"], last=arguments.get("last"))
    head = f"{note.path}:{found.first}-{found.last}  {note.title} (version {note.version})"
    text = f"{head}\n{found.text}"
    if found.last < found.count:
        text += format_rest("note", last=found.last, count=found.count)
    else:
        text += "\n" * note.text.endswith("\n")
    if note.is_cut:
        text += f"\n[Cut here: only the first {MAX_NOTE_BYTES:,} bytes of the note can be read.]"
    shown = ShownLines(note.version, found.first, found.last)
    source = SourceReference(
        note.path, note.title, f"{found.first}–{found.last}", version=note.version
    )
    return ToolOutput(text, (source,), marks=frozenset(note.marks), shown=(shown,))


async def _list(notes: Notes, arguments: Mapping[str, Any], _: ToolContext) -> ToolOutput:
    summaries = await notes.list(arguments["folder"])
    depth = len(folder_parts(arguments["folder"]))
    lines = _format_entries(summaries, depth=depth)
    if len(lines) > MAX_LISTED:
        more = f"… and {len(lines) - MAX_LISTED} more: use vault_search, or list a subfolder."
        lines = [*lines[:MAX_LISTED], more]
    # Without versions: a listed note was not read, so it cannot be stale.
    direct = [note for note in summaries if note.path.count("/") == depth]
    sources = tuple(SourceReference(note.path, note.title) for note in direct[:MAX_LISTED])
    text = "\n".join(lines) or "There are no notes yet."
    folders = await notes.folder_marks(_subfolders(summaries, depth=depth))
    marks = merge_marks(_merge_marks(direct), *folders.values())
    return ToolOutput(text + _format_indexing_note(notes), sources, len(summaries), marks=marks)


async def _tags(notes: Notes, _arguments: Mapping[str, Any], _: ToolContext) -> ToolOutput:
    tags = await notes.tags()
    lines = [f"#{each.tag}  ({_count_notes(each.notes)})" for each in tags]
    if len(lines) > MAX_LISTED:
        lines = [*lines[:MAX_LISTED], f"… and {len(tags) - MAX_LISTED} more."]
    text = "\n".join(lines) or "There are no tags yet."
    return ToolOutput(
        text + _format_indexing_note(notes), entry_count=len(tags), marks=_merge_marks(tags)
    )


async def _backlinks(notes: Notes, arguments: Mapping[str, Any], _: ToolContext) -> ToolOutput:
    links = await notes.backlinks(arguments["path"])
    shown = links[:MAX_BACKLINKS]
    lines = [f"{link.path}:{link.line}: {_one_line_text(link)}" for link in shown]
    if len(links) > MAX_BACKLINKS:
        lines.append(f"… and {len(links) - MAX_BACKLINKS} more.")
    versions = await notes.versions(tuple(dict.fromkeys(link.path for link in shown)))
    sources = [
        SourceReference(
            link.path,
            link.title,
            str(link.line),
            _one_line_text(link),
            version=versions.get(link.path, ""),
        )
        for link in shown
    ]
    text = "\n".join(lines) or "No note links to this note."
    return ToolOutput(
        text + _format_indexing_note(notes),
        tuple(sources),
        entry_count=len(links),
        marks=_merge_marks(shown),
    )


async def _write(notes: Notes, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
    path, content, version = (arguments[name] for name in ("path", "content", "version"))
    if version:
        await _require_shown(notes, path, version, context.shown)
    author = _author(context)
    written = await notes.write(path, content, version=version, author=author)
    # The model knows what it wrote.
    shown = ShownLines(written.version, 1, written.lines)
    return replace(_format_written(written), shown=(shown,))


async def _require_shown(
    notes: Notes, path: str, version: str, shown: Iterable[ShownLines]
) -> None:
    """Raise ToolRetry if the note has this version and the model has not seen all its lines."""
    try:
        note = await notes.read(path)
    except NotFound:
        return  # the write reports it, and every other reason why it is refused
    if note.version != version or note.is_cut:
        return
    unseen = find_unseen_lines(shown, version, note.lines)
    if unseen:
        ranges = ", ".join(f"{first}-{last}" for first, last in unseen[:MAX_UNSEEN_RANGES])
        raise ToolRetry(
            f"the note '{note.path}' has {note.lines:,} lines; you have not seen all of them in "
            f"this version: {ranges}.",
            hint="Read them with vault_read (first, last), in smaller parts if they are "
            "summarised. Then write the whole note.",
        )


async def _move(notes: Notes, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
    move = await notes.move(arguments["path"], arguments["to"], author=_author(context))
    shown = (move.to, *move.relinked[:MAX_NAMED_NOTES])
    versions = await notes.versions(shown)
    sources = [
        SourceReference(path, version=versions.get(path, "")) for path in dict.fromkeys(shown)
    ]
    return ToolOutput(
        _format_move(move),
        tuple(sources),
        entry_count=len(move.relinked),
        marks=frozenset(move.marks),
    )


async def _create_index(
    notes: Notes, arguments: Mapping[str, Any], context: ToolContext
) -> ToolOutput:
    folder, title = arguments["folder"], arguments["title"]
    written = await notes.create_index(folder, title=title, author=_author(context))
    return _format_written(written)


def _author(context: ToolContext) -> NoteAuthor:
    return NoteAuthor(context.agent, context.marks)


def _merge_marks(results: Iterable[NoteSummary | NoteHit | Backlink | NoteTag]) -> Marks:
    return merge_marks(*(result.marks for result in results))


def _format_indexing_note(notes: Notes) -> str:
    """Return a note if results may lack recent changes, else ""."""
    return "\n\n[Recent changes are still being indexed. Ask again for them.]" * notes.is_behind


def _format_hit(hit: NoteHit) -> str:
    title = " > ".join(filter(None, (hit.title, hit.headings)))
    head = f"{hit.path}:{hit.first}-{hit.last}  {title}"
    return format_block(head, cut_text(hit.text, MAX_SECTION_CHARS))


def _subfolders(notes: Sequence[NoteSummary], *, depth: int) -> tuple[str, ...]:
    """Return the folders at this depth that contain notes."""
    parts = (note.path.split("/") for note in notes)
    return tuple(
        dict.fromkeys("/".join(each[: depth + 1]) for each in parts if len(each) > depth + 1)
    )


def _format_entries(notes: Sequence[NoteSummary], *, depth: int) -> list[str]:
    """Return the subfolders with their note counts, then the notes."""
    folders: Counter[str] = Counter()
    note_lines: list[str] = []
    for note in notes:
        parts = note.path.split("/")
        if len(parts) > depth + 1:
            folders["/".join(parts[: depth + 1])] += 1
        else:
            tags = "".join(f" #{tag}" for tag in note.tags)
            note_lines.append(f"{note.path}  {note.title} {tags}".rstrip())
    return [f"{folder}/  ({_count_notes(n)})" for folder, n in folders.items()] + note_lines


def _format_written(note: NoteWriteResult) -> ToolOutput:
    lines = f"{note.lines} line{'s' * (note.lines != 1)}"
    return ToolOutput(
        f"{note.path}: {note.outcome}, {lines} (version {note.version}).",
        (SourceReference(note.path, note.title, f"1–{note.lines}", version=note.version),),
    )


def _format_move(move: NoteMove) -> str:
    count = len(move.relinked)
    head = f"{move.path}: moved to {move.to} (move {move.id})."
    if not count:
        return f"{head} No links had to be changed."
    names = ", ".join(move.relinked[:MAX_NAMED_NOTES])
    more = f" and {count - MAX_NAMED_NOTES} more" if count > MAX_NAMED_NOTES else ""
    return f"{head} Links changed in {_count_notes(count)}: {names}{more}."


def _count_notes(count: int) -> str:
    return f"{count} note{'s' * (count != 1)}"


def _one_line_text(link: Backlink) -> str:
    """Return the text on one line, so that it cannot imitate another result."""
    return " ".join(link.text.split())[:MAX_EXCERPT_CHARS]


_Answer: TypeAlias = Callable[[Notes, Mapping[str, Any], ToolContext], Awaitable[ToolOutput]]

_ORACLE: Final = DEFAULT_SCOPE
_BOTH: Final = ("oracle", "librarian")

TOOLS: Final[Sequence[tuple[ToolSpec, _Answer, Effect, tuple[str, ...]]]] = (
    (SEARCH, _search, Effect.NONE, _ORACLE),
    (READ, _read, Effect.NONE, _BOTH),
    (LIST, _list, Effect.NONE, _BOTH),
    (TAGS, _tags, Effect.NONE, _ORACLE),
    (BACKLINKS, _backlinks, Effect.NONE, _ORACLE),
    (WRITE, _write, Effect.KEYED, _BOTH),
    (MOVE, _move, Effect.KEYED, _BOTH),
    (CREATE_INDEX, _create_index, Effect.KEYED, _BOTH),
)
_TIMEOUTS: Final = {READ.name: 10.0, MOVE.name: 120.0}  # a thousand notes may link to a moved one


def add_vault_tools(registry: ToolRegistry, notes_of: NotesLoader) -> None:
    """Register the tools that search, read, write and organize notes."""

    async def call(
        answer: _Answer, arguments: Mapping[str, Any], context: ToolContext
    ) -> ToolOutput:
        notes = await notes_of(context.user_id, context.project_id)
        return await answer(notes, arguments, context)

    for spec, answer, effect, scope in TOOLS:
        registry.tool(
            spec,
            category=ToolCategory.VAULT,
            agent_scope=scope,
            effect=effect,
            writes=effect is not Effect.NONE,
            keeps_versions=True,
            sends=False,
            timeout_seconds=_TIMEOUTS.get(spec.name, DEFAULT_TIMEOUT_SECONDS),
        )(partial(call, answer))
