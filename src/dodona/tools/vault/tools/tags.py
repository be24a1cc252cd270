"""vault_tags: every tag of the notes, with how many have it."""

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
    "List the tags of the notes, the most frequent first: '#tag  (number of notes)', a line each. "
    "Search for a tag's name to find its notes.",
    {"type": "object", "properties": {}, "additionalProperties": False},
)


def add(registry: ToolRegistry, notes_of: NotesLoader) -> None:
    @registry.tool(SPEC, category=ToolCategory.VAULT, effect=Effect.NONE)
    async def vault_tags(_arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        notes = await notes_of(context.user_id, context.project_id)
        found = await notes.tags()
        lines = [f"#{tag}  ({count} note{'s' * (count != 1)})" for tag, count in found]
        if len(lines) > MAX_SHOWN:
            lines = [*lines[:MAX_SHOWN], f"… and {len(found) - MAX_SHOWN} more."]
        return ToolOutput("\n".join(lines) or "There are no tags yet.", entry_count=len(found))
