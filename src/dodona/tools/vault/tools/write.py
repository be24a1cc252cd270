"""vault_write: a note replaced as a whole.

A note that is there is replaced only by who gives the version that was read, so nobody's edit is
lost. The effect is keyed: a call that a crash cut is made again, and when the note already says
what it should, nothing is written and nothing is wrong.
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
    "Write a note: 'content' becomes the whole of it. A new note is created, with its folders. One "
    "that is there is replaced only if you give the 'version' that vault_read showed: read it "
    "first, and keep what is in it.",
    {
        "type": "object",
        "properties": {
            "path": {
                "type": "string",
                "description": "Relative to the vault, such as 'notes/plan.md'.",
                "minLength": 1,
            },
            "content": {
                "type": "string",
                "description": "Markdown, with front matter (title, tags) if you like.",
                "maxLength": MAX_NOTE_BYTES,
            },
            "version": {
                "type": "string",
                "description": "Of the note that is replaced, as vault_read shows it; empty for a "
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
