"""vault_backlinks: the lines of notes that link to a note, as `path:line: text`."""

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
    "List the lines that link to a note, as 'path:line: text'.",
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
    """Register vault_backlinks."""

    @registry.tool(SPEC, category=ToolCategory.VAULT, effect=Effect.NONE)
    async def vault_backlinks(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        notes = await notes_of(context.user_id, context.project_id)
        links = await notes.backlinks(arguments["path"])
        if not links:
            return ToolOutput("No note links to this note.")
        shown = links[:MAX_SHOWN]
        lines = [f"{link.path}:{link.line}: {_one_line_text(link)}" for link in shown]
        if len(links) > MAX_SHOWN:
            lines.append(f"… and {len(links) - MAX_SHOWN} more.")
        versions = await notes.versions(tuple(dict.fromkeys(link.path for link in shown)))
        sources = [
            SourceReference(
                link.path,
                link.title,
                str(link.line),
                _one_line_text(link),
                version=versions.get(link.path, ""),
            )
            for link in shown
        ]
        return ToolOutput("\n".join(lines), tuple(sources), entry_count=len(links))


def _one_line_text(link: Backlink) -> str:
    """Return the text on one line, so that it cannot imitate another result."""
    return " ".join(link.text.split())[:MAX_LINE_CHARS]
