"""vault_write: creates a note or replaces it as a whole.

To replace an existing note, a call must pass the version that was read, so no edit is lost. The
effect is keyed: when a call is repeated after a crash and the note already has the content, nothing
is written and the call succeeds.
"""

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
    "vault_write",
    "Write a note: 'content' becomes the whole note. A new note and its folders are created. An "
    "existing note is replaced only if you pass the 'version' that vault_read returned: read it "
    "first, and keep its content.",
    {
        "type": "object",
        "properties": {
            "path": {
                "type": "string",
                "description": "The note, relative to the vault, such as 'notes/plan.md'.",
                "minLength": 1,
            },
            "content": {
                "type": "string",
                "description": "Markdown, optionally with front matter (title, tags).",
                "maxLength": MAX_NOTE_BYTES,
            },
            "version": {
                "type": "string",
                "description": "The version of the existing note, from vault_read; empty for a "
                "new note.",
                "maxLength": 64,
                "default": "",
            },
        },
        "required": ["path", "content"],
        "additionalProperties": False,
    },
)


def add(registry: ToolRegistry, notes_of: NotesLoader) -> None:
    """Register vault_write."""

    @registry.tool(
        SPEC,
        category=ToolCategory.VAULT,
        agent_scope=("oracle", "librarian"),
        effect=Effect.KEYED,
    )
    async def vault_write(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        notes = await notes_of(context.user_id, context.project_id)
        path, content, version = (arguments[name] for name in ("path", "content", "version"))
        note = await notes.write(path, content, version=version)
        lines = f"{note.lines} line{'s' * (note.lines != 1)}"
        return ToolOutput(
            f"{note.path}: {note.outcome}, {lines} (version {note.version}).",
            (SourceReference(note.path, note.title, f"1–{note.lines}", version=note.version),),
        )
