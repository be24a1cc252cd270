"""thread_list: the threads of a project, one line each, latest first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dodona.core.domain.knowledge.threads import ThreadSummary
from dodona.core.messages import ToolSpec
from dodona.core.ports.journal import Effect
from dodona.core.ports.tools import (
    SourceKind,
    SourceReference,
    ToolCategory,
    ToolContext,
    ToolOutput,
)
from dodona.store.projects.threads import Threads
from dodona.tools.registry import ToolRegistry
from dodona.tools.threads.entries import format_date

SPEC: Final = ToolSpec(
    "thread_list",
    "List the project's threads, its logs of thoughts and decisions, latest first. One line each: "
    "'thread:12  title  (5 entries, last on 2026-11-16)'.",
    {
        "type": "object",
        "properties": {
            "limit": {
                "type": "integer",
                "description": "The maximum number of threads to return.",
                "minimum": 1,
                "maximum": 200,
                "default": 50,
            }
        },
        "additionalProperties": False,
    },
)


def add(registry: ToolRegistry, logs: Threads) -> None:
    """Register thread_list."""

    @registry.tool(SPEC, category=ToolCategory.THREAD, effect=Effect.NONE)
    async def thread_list(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        limit = arguments["limit"]
        summaries = await logs.list(context.user_id, context.project_id, limit=limit)
        return ToolOutput(
            "\n".join(map(_format_thread, summaries)) or "There are no threads yet.",
            tuple(
                SourceReference(f"thread:{thread.id}", thread.title, kind=SourceKind.THREAD)
                for thread in summaries
            ),
            entry_count=len(summaries),
        )


def _format_thread(thread: ThreadSummary) -> str:
    number = f"{thread.entries} {'entry' if thread.entries == 1 else 'entries'}"
    return (
        f"thread:{thread.id}  {thread.title}  ({number}, last on {format_date(thread.updated_at)})"
    )
