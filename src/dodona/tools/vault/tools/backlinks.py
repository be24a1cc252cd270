"""vault_backlinks: the lines of other notes that link to a note, as `path:line: text`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dodona.core.domain.knowledge.notes import Backlink, NotesOf
from dodona.core.messages import ToolSpec
from dodona.core.ports.journal import Effect
from dodona.core.ports.tools import Category, Source, ToolContext, ToolOutcome
from dodona.tools.registry import ToolRegistry

MOST_SHOWN: Final = 100
LONGEST_LINE: Final = 300

SPEC: Final = ToolSpec(
    "vault_backlinks",
    "List the lines of notes that link to a note, as 'path:line: text'.",
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


def add(registry: ToolRegistry, notes_of: NotesOf) -> None:
    @registry.tool(SPEC, category=Category.VAULT, effect=Effect.NONE)
    async def vault_backlinks(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        notes = await notes_of(context.user_id, context.project_id)
        found = await notes.backlinks(arguments["path"])
        if not found:
            return ToolOutcome("No note links to it.")
        shown = found[:MOST_SHOWN]
        lines = [f"{each.path}:{each.line}: {_text(each)}" for each in shown]
        if len(found) > MOST_SHOWN:
            lines.append(f"… and {len(found) - MOST_SHOWN} more.")
        versions = await notes.versions(tuple(dict.fromkeys(each.path for each in shown)))
        sources = [
            Source(
                each.path,
                each.title,
                str(each.line),
                _text(each),
                version=versions.get(each.path, ""),
            )
            for each in shown
        ]
        return ToolOutcome("\n".join(lines), tuple(sources), entries=len(found))


def _text(link: Backlink) -> str:
    """On one line, so that no line in a note can pass for another."""
    return " ".join(link.text.split())[:LONGEST_LINE]
