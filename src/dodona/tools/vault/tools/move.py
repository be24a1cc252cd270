"""vault_move: another path for a note, and every link to it changed with it.

The effect is keyed: made again, the move is found to be done. What it did can be undone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dodona.core.domain.knowledge.notes import NoteMove, NotesLoader
from dodona.core.messages import ToolSpec
from dodona.core.ports.journal import Effect
from dodona.core.ports.tools import SourceReference, ToolCategory, ToolContext, ToolOutput
from dodona.tools.registry import ToolRegistry

MAX_NAMED_NOTES: Final = 20  # of the notes whose links were changed

SPEC: Final = ToolSpec(
    "vault_move",
    "Move or rename a note. Every link to it in other notes is changed; folders are made as "
    "needed. It can be undone by the user.",
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
                "description": "Its new path with its name, such as 'projects/garden/plan.md'.",
                "minLength": 1,
            },
        },
        "required": ["path", "to"],
        "additionalProperties": False,
    },
)


def add(registry: ToolRegistry, notes_of: NotesLoader) -> None:
    @registry.tool(
        SPEC,
        category=ToolCategory.VAULT,
        agent_scope=("oracle", "librarian"),
        effect=Effect.KEYED,
        timeout_seconds=120,  # a thousand notes may link to it
    )
    async def vault_move(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        notes = await notes_of(context.user_id, context.project_id)
        moved = await notes.move(arguments["path"], arguments["to"])
        shown = (moved.to, *moved.relinked[:MAX_NAMED_NOTES])
        versions = await notes.versions(shown)
        sources = [
            SourceReference(path, version=versions.get(path, "")) for path in dict.fromkeys(shown)
        ]
        return ToolOutput(_format_move(moved), tuple(sources), entry_count=len(moved.relinked))


def _format_move(moved: NoteMove) -> str:
    count = len(moved.relinked)
    head = f"{moved.path}: moved to {moved.to} (move {moved.id})."
    if not count:
        return f"{head} No link had to be changed."
    named = ", ".join(moved.relinked[:MAX_NAMED_NOTES])
    more = f" and {count - MAX_NAMED_NOTES} more" if count > MAX_NAMED_NOTES else ""
    return f"{head} Links changed in {count} note{'s' * (count != 1)}: {named}{more}."
