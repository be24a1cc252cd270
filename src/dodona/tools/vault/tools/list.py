"""vault_list: the content of a folder, one line per note and subfolder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from dodona.core.domain.knowledge.notes import NotesLoader, NoteSummary
from dodona.core.messages import ToolSpec
from dodona.core.ports.journal import Effect
from dodona.core.ports.tools import SourceReference, ToolCategory, ToolContext, ToolOutput
from dodona.tools.registry import ToolRegistry
from dodona.tools.vault.notes.paths import folder_parts

MAX_ENTRIES: Final = 300

SPEC: Final = ToolSpec(
    "vault_list",
    "List the notes and subfolders of a folder in the vault, one line each: "
    "'folder/  (number of notes)' or 'path  title  #tags'.",
    {
        "type": "object",
        "properties": {
            "folder": {
                "type": "string",
                "description": "Relative to the vault, such as 'notes'; empty for the whole vault.",
                "default": "",
            }
        },
        "additionalProperties": False,
    },
)


def add(registry: ToolRegistry, notes_of: NotesLoader) -> None:
    """Register vault_list."""

    @registry.tool(
        SPEC, category=ToolCategory.VAULT, agent_scope=("oracle", "librarian"), effect=Effect.NONE
    )
    async def vault_list(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        vault = await notes_of(context.user_id, context.project_id)
        notes = await vault.list(arguments["folder"])
        depth = len(folder_parts(arguments["folder"]))
        lines = _format_lines(notes, depth=depth)
        if len(lines) > MAX_ENTRIES:
            more = f"… and {len(lines) - MAX_ENTRIES} more: use vault_search, or list a subfolder."
            lines = [*lines[:MAX_ENTRIES], more]
        # Without versions: a listed note was not read, so it cannot be stale.
        direct = [note for note in notes if note.path.count("/") == depth]
        sources = tuple(SourceReference(note.path, note.title) for note in direct[:MAX_ENTRIES])
        return ToolOutput("\n".join(lines) or "There are no notes yet.", sources, len(notes))


def _format_lines(notes: Sequence[NoteSummary], *, depth: int) -> list[str]:
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
    folder_lines = [
        f"{folder}/  ({number} note{'s' * (number != 1)})" for folder, number in folders.items()
    ]
    return folder_lines + note_lines
