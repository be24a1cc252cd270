"""vault_create_index: writes `index.md` in a folder, with a link and a summary for each note."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dodona.core.domain.knowledge.notes import NotesLoader
from dodona.core.messages import ToolSpec
from dodona.core.ports.journal import Effect
from dodona.core.ports.tools import SourceReference, ToolCategory, ToolContext, ToolOutput
from dodona.tools.registry import ToolRegistry

SPEC: Final = ToolSpec(
    "vault_create_index",
    "Write 'index.md' in a folder of the vault: a link to each note in the folder and its "
    "subfolders, with its first sentence. Call it again to update the list; other text is kept.",
    {
        "type": "object",
        "properties": {
            "folder": {
                "type": "string",
                "description": "Relative to the vault, such as 'notes'; empty for the whole vault.",
                "default": "",
            },
            "title": {
                "type": "string",
                "description": "The heading of a new index; default: the folder's name.",
                "maxLength": 120,
                "default": "",
            },
        },
        "additionalProperties": False,
    },
)


def add(registry: ToolRegistry, notes_of: NotesLoader) -> None:
    """Register vault_create_index."""

    @registry.tool(
        SPEC,
        category=ToolCategory.VAULT,
        agent_scope=("oracle", "librarian"),
        effect=Effect.KEYED,
    )
    async def vault_create_index(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        notes = await notes_of(context.user_id, context.project_id)
        note = await notes.create_index(arguments["folder"], title=arguments["title"])
        return ToolOutput(
            f"{note.path}: {note.outcome}, {note.lines} lines (version {note.version}).",
            (SourceReference(note.path, note.title, f"1–{note.lines}", version=note.version),),
        )
