"""vault_read: a whole note, headed by `path:1-last  title (version …)` for citing its lines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dodona.core.domain.knowledge.notes import NotesLoader
from dodona.core.messages import ToolSpec
from dodona.core.ports.journal import Effect
from dodona.core.ports.tools import SourceReference, ToolCategory, ToolContext, ToolOutput
from dodona.tools.registry import ToolRegistry
from dodona.tools.vault.notes.files import MAX_NOTE_BYTES

SPEC: Final = ToolSpec(
    "vault_read",
    "Read a note. Returns a line 'path:1-last  title (version …)', then the text of the note. "
    "Pass the version to vault_write when you change the note.",
    {
        "type": "object",
        "properties": {
            "path": {
                "type": "string",
                "description": "The note, relative to the vault, such as 'notes/plan.md'.",
                "minLength": 1,
            }
        },
        "required": ["path"],
        "additionalProperties": False,
    },
)


def add(registry: ToolRegistry, notes_of: NotesLoader) -> None:
    """Register vault_read."""

    @registry.tool(
        SPEC,
        category=ToolCategory.VAULT,
        agent_scope=("oracle", "librarian"),
        effect=Effect.NONE,
        timeout_seconds=10,
    )
    async def vault_read(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        notes = await notes_of(context.user_id, context.project_id)
        note = await notes.read(arguments["path"])
        head = f"{note.path}:1-{note.lines}  {note.title} (version {note.version})"
        text = f"{head}\n{note.text}"
        if note.is_cut:
            text += f"\n[Cut here: these are the first {MAX_NOTE_BYTES:,} bytes.]"
        source = SourceReference(note.path, note.title, f"1–{note.lines}", version=note.version)
        return ToolOutput(text, (source,))
