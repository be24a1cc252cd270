"""vault_move: moves a note and updates every link to it.

The effect is keyed: a repeated call returns the finished move. A move can be undone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dodona.core.domain.knowledge.notes import NoteMove, NotesLoader
from dodona.core.messages import ToolSpec
from dodona.core.ports.journal import Effect
from dodona.core.ports.tools import SourceReference, ToolCategory, ToolContext, ToolOutput
from dodona.tools.registry import ToolRegistry

MAX_NAMED_NOTES: Final = 20  # changed notes that are listed

SPEC: Final = ToolSpec(
    "vault_move",
    "Move or rename a note. Every link to it in other notes is updated; missing folders are "
    "created. The user can undo the move.",
    {
        "type": "object",
        "properties": {
            "path": {
                "type": "string",
                "description": "The note, relative to the vault, such as 'plan.md'.",
                "minLength": 1,
            },
            "to": {
                "type": "string",
                "description": "The new path with the name, such as 'projects/garden/plan.md'.",
                "minLength": 1,
            },
        },
        "required": ["path", "to"],
        "additionalProperties": False,
    },
)


def add(registry: ToolRegistry, notes_of: NotesLoader) -> None:
    """Register vault_move."""

    @registry.tool(
        SPEC,
        category=ToolCategory.VAULT,
        agent_scope=("oracle", "librarian"),
        effect=Effect.KEYED,
        timeout_seconds=120,  # a thousand notes may link to it
    )
    async def vault_move(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        notes = await notes_of(context.user_id, context.project_id)
        move = await notes.move(arguments["path"], arguments["to"])
        shown = (move.to, *move.relinked[:MAX_NAMED_NOTES])
        versions = await notes.versions(shown)
        sources = [
            SourceReference(path, version=versions.get(path, "")) for path in dict.fromkeys(shown)
        ]
        return ToolOutput(_format_move(move), tuple(sources), entry_count=len(move.relinked))


def _format_move(move: NoteMove) -> str:
    count = len(move.relinked)
    head = f"{move.path}: moved to {move.to} (move {move.id})."
    if not count:
        return f"{head} No links had to be changed."
    names = ", ".join(move.relinked[:MAX_NAMED_NOTES])
    more = f" and {count - MAX_NAMED_NOTES} more" if count > MAX_NAMED_NOTES else ""
    return f"{head} Links changed in {count} note{'s' * (count != 1)}: {names}{more}."
