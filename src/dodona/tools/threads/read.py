"""thread_read: the entries of a thread in order, as many as fit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dodona.core.domain.knowledge.threads import ThreadEntry, ThreadPage
from dodona.core.messages import ToolSpec
from dodona.core.ports.journal import Effect
from dodona.core.ports.tools import ToolCategory, ToolContext, ToolOutput
from dodona.store.projects.threads import Threads
from dodona.tools.registry import ToolRegistry
from dodona.tools.threads.entries import MAX_ID, build_source, format_entry

MAX_TOTAL_CHARS: Final = 60_000  # all entries together; the first one is shown whatever its length

SPEC: Final = ToolSpec(
    "thread_read",
    "Read the entries of a thread, oldest first. Each entry is a block: a line 'thread:12#34  "
    "decision by oracle, 2026-11-16  title', then its text, indented. Cite an entry as "
    "'thread:12#34'.",
    {
        "type": "object",
        "properties": {
            "thread_id": {
                "type": "integer",
                "description": "The thread's number, as thread_list and thread_seek return it.",
                "minimum": 1,
                "maximum": MAX_ID,
            },
            "after": {
                "type": "integer",
                "description": "Continue after this entry, 34 in 'thread:12#34'. 0 starts with the "
                "oldest entry; -1 reads the newest entries.",
                "minimum": -1,
                "maximum": MAX_ID,
                "default": 0,
            },
            "limit": {
                "type": "integer",
                "description": "The maximum number of entries to return.",
                "minimum": 1,
                "maximum": 50,
                "default": 50,
            },
        },
        "required": ["thread_id"],
        "additionalProperties": False,
    },
)


def add(registry: ToolRegistry, logs: Threads) -> None:
    """Register thread_read."""

    @registry.tool(SPEC, category=ToolCategory.THREAD, effect=Effect.NONE, timeout_seconds=10)
    async def thread_read(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        after, limit = arguments["after"], arguments["limit"]
        page = await logs.read(
            context.user_id, context.project_id, arguments["thread_id"], after=after, limit=limit
        )
        if not page.entries:
            return ToolOutput(f"There are no entries after {after}.", entry_count=page.total)
        shown = _select_entries(page, newest=after < 0)
        title = page.thread.title
        extent = _format_extent(page, shown, after=after, limit=limit)
        blocks = [format_entry(entry, title, entry.content) for entry in shown]
        return ToolOutput(
            "\n\n".join(filter(None, (extent, *blocks))),
            tuple(build_source(entry, title, entry.content) for entry in shown),
            entry_count=page.total,
        )


def _select_entries(page: ThreadPage, *, newest: bool) -> list[ThreadEntry]:
    """Return as many entries as fit, from the requested end."""
    shown: list[ThreadEntry] = []
    size = 0
    for entry in reversed(page.entries) if newest else page.entries:
        size += len(entry.content)
        if shown and size > MAX_TOTAL_CHARS:
            break
        shown.append(entry)
    return shown[::-1] if newest else shown


def _format_extent(page: ThreadPage, shown: list[ThreadEntry], *, after: int, limit: int) -> str:
    """State which part of the thread this is; empty for the whole thread.

    It is one line in brackets, which no entry can imitate because entries are indented.
    """
    if len(shown) == page.total:
        return ""
    part = f"{len(shown)} of {page.total} entries"
    if after < 0:
        return f"[The newest {part}.]"
    is_end = len(shown) == len(page.entries) < limit
    rest = "There are no later entries" if is_end else f"Continue with after={shown[-1].id}"
    return f"[{part}. {rest}.]"
