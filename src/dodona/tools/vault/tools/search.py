"""vault_search: sections of notes by their words, each headed by `path:first-last  title`.

The text is indented, so no line of a note can imitate the head of another section.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dodona.core.domain.knowledge.notes import NoteHit, NotesLoader
from dodona.core.messages import ToolSpec
from dodona.core.ports.journal import Effect
from dodona.core.ports.tools import SourceReference, ToolCategory, ToolContext, ToolOutput
from dodona.tools.registry import ToolRegistry
from dodona.tools.vault.index.query import MAX_QUERY_CHARS

MAX_EXCERPT_CHARS: Final = 2_000
MAX_SOURCE_CHARS: Final = 300
INDENT: Final = "    "

SPEC: Final = ToolSpec(
    "vault_search",
    "Search the project's notes. Returns the best sections as blocks: a line "
    "'path:first-last  title > heading', then the text of these lines, indented. Put a phrase in "
    "quotes. Read the whole note with vault_read.",
    {
        "type": "object",
        "properties": {
            "query": {
                "type": "string",
                "description": "The search terms; rare words work best.",
                "minLength": 1,
                "maxLength": MAX_QUERY_CHARS,
            },
            "limit": {
                "type": "integer",
                "description": "The maximum number of sections to return.",
                "minimum": 1,
                "maximum": 20,
                "default": 5,
            },
        },
        "required": ["query"],
        "additionalProperties": False,
    },
)


def add(registry: ToolRegistry, notes_of: NotesLoader) -> None:
    """Register vault_search."""

    @registry.tool(SPEC, category=ToolCategory.VAULT, effect=Effect.NONE)
    async def vault_search(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        notes = await notes_of(context.user_id, context.project_id)
        hits = await notes.search(arguments["query"], arguments["limit"])
        if not hits:
            return ToolOutput("Nothing found.")
        versions = await notes.versions(tuple({hit.path for hit in hits}))
        return ToolOutput(
            "\n\n".join(map(_format_hit, hits)),
            tuple(_source(hit, versions.get(hit.path, "")) for hit in hits),
            entry_count=len(hits),
            scores=tuple(hit.score for hit in hits),
        )


def _format_hit(hit: NoteHit) -> str:
    title = " > ".join(filter(None, (hit.title, hit.headings)))
    head = f"{hit.path}:{hit.first}-{hit.last}  {title}"
    lines = [" ".join(line.splitlines()) for line in _excerpt(hit.text).split("\n")]
    return "\n".join([head, *((INDENT + line).rstrip() for line in lines)])


def _excerpt(text: str) -> str:
    return text if len(text) <= MAX_EXCERPT_CHARS else text[: MAX_EXCERPT_CHARS - 1] + "…"


def _source(hit: NoteHit, version: str) -> SourceReference:
    excerpt = hit.text[:MAX_SOURCE_CHARS]
    return SourceReference(hit.path, hit.title, f"{hit.first}–{hit.last}", excerpt, version=version)
