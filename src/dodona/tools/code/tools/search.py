"""search_code: chunks of code by their words, each headed by `path:first-last  title`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dodona.core.domain.knowledge.code import CodeLoader
from dodona.core.messages import ToolSpec
from dodona.core.ports.journal import Effect
from dodona.core.ports.tools import ToolCategory, ToolContext, ToolOutput
from dodona.tools.code.index.query import MAX_QUERY_CHARS
from dodona.tools.code.tools.presentation import (
    NO_CODE,
    build_source,
    format_block,
    format_indexing_note,
    has_code,
)
from dodona.tools.registry import ToolRegistry

SPEC: Final = ToolSpec(
    "search_code",
    "Search the project's code by words: identifiers or parts of them, and words in comments. "
    "Returns the best matches as blocks: a line 'path:first-last  definition', then the lines, "
    "indented. If you know the exact name, use find_definition and find_references instead.",
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
                "description": "The maximum number of matches to return.",
                "minimum": 1,
                "maximum": 30,
                "default": 8,
            },
        },
        "required": ["query"],
        "additionalProperties": False,
    },
)


def add(registry: ToolRegistry, code_of: CodeLoader) -> None:
    """Register search_code."""

    @registry.tool(
        SPEC, category=ToolCategory.CODE, agent_scope=("oracle", "librarian"), effect=Effect.NONE
    )
    async def search_code(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        code = await code_of(context.user_id, context.project_id)
        if not has_code(code):
            return NO_CODE
        hits = await code.search(arguments["query"], arguments["limit"])
        versions = await code.versions(tuple({hit.path for hit in hits}))
        blocks = [format_block(h.path, h.first, h.last, title=h.title, text=h.text) for h in hits]
        return ToolOutput(
            ("\n\n".join(blocks) or "Nothing found.") + await format_indexing_note(code),
            tuple(
                build_source(
                    hit.path,
                    (hit.first, hit.last),
                    title=hit.title,
                    excerpt=hit.text,
                    version=versions.get(hit.path, ""),
                )
                for hit in hits
            ),
            entry_count=len(hits),
            scores=tuple(hit.score for hit in hits),
        )
