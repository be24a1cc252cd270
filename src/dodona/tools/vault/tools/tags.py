"""vault_tags: every tag with its number of notes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dodona.core.domain.knowledge.notes import NotesLoader
from dodona.core.messages import ToolSpec
from dodona.core.ports.journal import Effect
from dodona.core.ports.tools import ToolCategory, ToolContext, ToolOutput
from dodona.tools.registry import ToolRegistry

MAX_SHOWN: Final = 300

SPEC: Final = ToolSpec(
    "vault_tags",
    "List the tags of the notes, most frequent first, one line each: '#tag  (number of notes)'. "
    "To find the notes with a tag, search for its name.",
    {"type": "object", "properties": {}, "additionalProperties": False},
)


def add(registry: ToolRegistry, notes_of: NotesLoader) -> None:
    """Register vault_tags."""

    @registry.tool(SPEC, category=ToolCategory.VAULT, effect=Effect.NONE)
    async def vault_tags(_arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        notes = await notes_of(context.user_id, context.project_id)
        tags = await notes.tags()
        lines = [f"#{tag}  ({count} note{'s' * (count != 1)})" for tag, count in tags]
        if len(lines) > MAX_SHOWN:
            lines = [*lines[:MAX_SHOWN], f"… and {len(tags) - MAX_SHOWN} more."]
        return ToolOutput("\n".join(lines) or "There are no tags yet.", entry_count=len(tags))
