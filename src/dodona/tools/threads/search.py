"""thread_seek: full-text search in the entries of all threads, best first."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from dodona.core.messages import ToolSpec
from dodona.core.ports.journal import Effect
from dodona.core.ports.tools import ToolCategory, ToolContext, ToolOutput
from dodona.store.projects.threads import Threads
from dodona.tools.registry import ToolRegistry
from dodona.tools.threads.entries import build_source, format_entry

MAX_QUERY_CHARS: Final = 1_000
MAX_EXCERPT_CHARS: Final = 2_000
LEADING_CONTEXT_CHARS: Final = 300  # shown before the first match in a long entry
MIN_WORD_LENGTH: Final = 3

SPEC: Final = ToolSpec(
    "thread_seek",
    "Search the entries of the project's threads. Returns the best matches as blocks: a line "
    "'thread:12#34  decision by oracle, 2026-11-16  title', then the text, indented. Cite an entry "
    "as 'thread:12#34'; read the rest of its thread with thread_read.",
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
                "description": "The maximum number of entries to return.",
                "minimum": 1,
                "maximum": 30,
                "default": 10,
            },
        },
        "required": ["query"],
        "additionalProperties": False,
    },
)


def add(registry: ToolRegistry, logs: Threads) -> None:
    """Register thread_seek."""

    @registry.tool(SPEC, category=ToolCategory.THREAD, effect=Effect.NONE)
    async def thread_seek(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        query, limit = arguments["query"], arguments["limit"]
        hits = await logs.search(context.user_id, context.project_id, query, limit=limit)
        if not hits:
            return ToolOutput("Nothing found.")
        excerpts = [build_excerpt(hit.content, query) for hit in hits]
        pairs = list(zip(hits, excerpts, strict=True))
        return ToolOutput(
            "\n\n".join(format_entry(hit, hit.title, text) for hit, text in pairs),
            tuple(build_source(hit, hit.title, text) for hit, text in pairs),
            scores=tuple(hit.score for hit in hits),
        )


def build_excerpt(text: str, query: str) -> str:
    """Return the text, or the part of a long text around the first query word."""
    if len(text) <= MAX_EXCERPT_CHARS:
        return text
    words = [word for word in re.findall(r"\w+", query) if len(word) >= MIN_WORD_LENGTH]
    match = re.search("|".join(map(re.escape, words)) or r"(?!)", text, re.IGNORECASE)
    start = max(0, match.start() - LEADING_CONTEXT_CHARS) if match else 0
    shown = text[start : start + MAX_EXCERPT_CHARS - 2]
    return f"{'…' * (start > 0)}{shown}{'…' * (start + len(shown) < len(text))}"
