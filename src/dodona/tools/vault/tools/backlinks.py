"""vault_backlinks: the lines of other notes that link to a note, as `path:line: text`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dodona.core.domain.knowledge.notes import Backlink, NotesLoader
from dodona.core.messages import ToolSpec
from dodona.core.ports.journal import Effect
from dodona.core.ports.tools import SourceReference, ToolCategory, ToolContext, ToolOutput
from dodona.tools.registry import ToolRegistry

MAX_SHOWN: Final = 100
MAX_LINE_CHARS: Final = 300

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


def add(registry: ToolRegistry, notes_of: NotesLoader) -> None:
    @registry.tool(SPEC, category=ToolCategory.VAULT, effect=Effect.NONE)
    async def vault_backlinks(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        notes = await notes_of(context.user_id, context.project_id)
        found = await notes.backlinks(arguments["path"])
        if not found:
            return ToolOutput("No note links to it.")
        shown = found[:MAX_SHOWN]
        lines = [f"{each.path}:{each.line}: {_one_line_text(each)}" for each in shown]
        if len(found) > MAX_SHOWN:
            lines.append(f"… and {len(found) - MAX_SHOWN} more.")
        versions = await notes.versions(tuple(dict.fromkeys(each.path for each in shown)))
        sources = [
            SourceReference(
                each.path,
                each.title,
                str(each.line),
                _one_line_text(each),
                version=versions.get(each.path, ""),
            )
            for each in shown
        ]
        return ToolOutput("\n".join(lines), tuple(sources), entry_count=len(found))


def _one_line_text(link: Backlink) -> str:
    """On one line, so that no line in a note can pass for another."""
    return " ".join(link.text.split())[:MAX_LINE_CHARS]
