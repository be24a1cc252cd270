"""vault_create_index: `index.md` in a folder, with a link to each note and a line about it."""

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
    "Write 'index.md' into a folder of the vault: a link to each note in it and below, with its "
    "first sentence. Called again, it brings the list up to date and keeps what else is there.",
    {
        "type": "object",
        "properties": {
            "folder": {
                "type": "string",
                "description": "Relative to the vault, such as 'notes'; empty for all of it.",
                "default": "",
            },
            "title": {
                "type": "string",
                "description": "The heading of a new index; by default the folder's name.",
                "maxLength": 120,
                "default": "",
            },
        },
        "additionalProperties": False,
    },
)


def add(registry: ToolRegistry, notes_of: NotesLoader) -> None:
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
