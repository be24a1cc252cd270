"""thread_list: the threads of a project, a line each, the latest first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dodona.core.domain.knowledge.threads import ThreadLogs, ThreadSummary
from dodona.core.messages import ToolSpec
from dodona.core.ports.journal import Effect
from dodona.core.ports.tools import (
    SourceKind,
    SourceReference,
    ToolCategory,
    ToolContext,
    ToolOutput,
)
from dodona.tools.registry import ToolRegistry
from dodona.tools.threads.entries import format_date

SPEC: Final = ToolSpec(
    "thread_list",
    "List the threads of the project, the logs of its thoughts and decisions, the latest first: "
    "'thread:12  title  (5 entries, last on 2026-11-16)', a line each.",
    {
        "type": "object",
        "properties": {
            "limit": {
                "type": "integer",
                "description": "The most threads to return.",
                "minimum": 1,
                "maximum": 200,
                "default": 50,
            }
        },
        "additionalProperties": False,
    },
)


def add(registry: ToolRegistry, logs: ThreadLogs) -> None:
    @registry.tool(SPEC, category=ToolCategory.THREAD, effect=Effect.NONE)
    async def thread_list(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        limit = arguments["limit"]
        found = await logs.list(context.user_id, context.project_id, limit=limit)
        return ToolOutput(
            "\n".join(map(_format_thread, found)) or "There are no threads yet.",
            tuple(
                SourceReference(f"thread:{thread.id}", thread.title, kind=SourceKind.THREAD)
                for thread in found
            ),
            entry_count=len(found),
        )


def _format_thread(thread: ThreadSummary) -> str:
    number = f"{thread.entries} {'entry' if thread.entries == 1 else 'entries'}"
    return (
        f"thread:{thread.id}  {thread.title}  ({number}, last on {format_date(thread.updated_at)})"
    )
