"""vault_move: another path for a note, and every link to it changed with it.

The effect is keyed: made again, the move is found to be done. What it did can be undone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dodona.core.domain.knowledge.notes import NoteMoved, NotesOf
from dodona.core.messages import ToolSpec
from dodona.core.ports.journal import Effect
from dodona.core.ports.tools import Category, Source, ToolContext, ToolOutcome
from dodona.tools.registry import ToolRegistry

MOST_NAMED: Final = 20  # of the notes whose links were changed

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


def add(registry: ToolRegistry, notes_of: NotesOf) -> None:
    @registry.tool(
        SPEC,
        category=Category.VAULT,
        agent_scope=("oracle", "librarian"),
        effect=Effect.KEYED,
        timeout_seconds=120,  # a thousand notes may link to it
    )
    async def vault_move(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        notes = await notes_of(context.user_id, context.project_id)
        moved = await notes.move(arguments["path"], arguments["to"])
        shown = (moved.to, *moved.relinked[:MOST_NAMED])
        versions = await notes.versions(shown)
        sources = [Source(path, version=versions.get(path, "")) for path in dict.fromkeys(shown)]
        return ToolOutcome(_told(moved), tuple(sources), entries=len(moved.relinked))


def _told(moved: NoteMoved) -> str:
    count = len(moved.relinked)
    head = f"{moved.path}: moved to {moved.to} (move {moved.id})."
    if not count:
        return f"{head} No link had to be changed."
    named = ", ".join(moved.relinked[:MOST_NAMED])
    more = f" and {count - MOST_NAMED} more" if count > MOST_NAMED else ""
    return f"{head} Links changed in {count} note{'s' * (count != 1)}: {named}{more}."
