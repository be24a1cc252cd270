"""thread_seek: entries of all threads by their words, the best first."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from dodona.core.domain.knowledge.threads import ThreadLogs
from dodona.core.messages import ToolSpec
from dodona.core.ports.journal import Effect
from dodona.core.ports.tools import Category, ToolContext, ToolOutcome
from dodona.tools.registry import ToolRegistry
from dodona.tools.threads.entries import block, source

LONGEST_QUERY: Final = 1_000
LONGEST_EXCERPT: Final = 2_000
BEFORE: Final = 300  # characters of a long entry that are shown before what was sought
SHORTEST_WORD: Final = 3

SPEC: Final = ToolSpec(
    "thread_seek",
    "Search the entries of the project's threads by words. Returns the best as blocks: a line "
    "'thread:12#34  decision by oracle, 2026-11-16  title', then the text, indented. Cite an entry "
    "by its 'thread:12#34'; read on in its thread with thread_read.",
    {
        "type": "object",
        "properties": {
            "query": {
                "type": "string",
                "description": "The words to look for, the more telling the better.",
                "minLength": 1,
                "maxLength": LONGEST_QUERY,
            },
            "limit": {
                "type": "integer",
                "description": "The most entries to return.",
                "minimum": 1,
                "maximum": 30,
                "default": 10,
            },
        },
        "required": ["query"],
        "additionalProperties": False,
    },
)


def add(registry: ToolRegistry, logs: ThreadLogs) -> None:
    @registry.tool(SPEC, category=Category.THREAD, effect=Effect.NONE)
    async def thread_seek(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        query, limit = arguments["query"], arguments["limit"]
        hits = await logs.search(context.user_id, context.project_id, query, limit=limit)
        if not hits:
            return ToolOutcome("Nothing found.")
        excerpts = [excerpt(hit.entry.content, query) for hit in hits]
        pairs = list(zip(hits, excerpts, strict=True))
        return ToolOutcome(
            "\n\n".join(block(hit.entry, hit.title, text) for hit, text in pairs),
            tuple(source(hit.entry, hit.title, text) for hit, text in pairs),
            scores=tuple(hit.score for hit in hits),
        )


def excerpt(text: str, query: str) -> str:
    """The text, or as much of it as shows where the first word of the query is."""
    if len(text) <= LONGEST_EXCERPT:
        return text
    words = [word for word in re.findall(r"\w+", query) if len(word) >= SHORTEST_WORD]
    found = re.search("|".join(map(re.escape, words)) or r"(?!)", text, re.IGNORECASE)
    start = max(0, found.start() - BEFORE) if found else 0
    shown = text[start : start + LONGEST_EXCERPT - 2]
    return f"{'…' * (start > 0)}{shown}{'…' * (start + len(shown) < len(text))}"
