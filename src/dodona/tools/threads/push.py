"""thread_push: an entry added to a thread, which is begun if there is none of the title.

Its effect is keyed: a call that a crash cut is made again, and the entry is there once. Who writes
is the agent that calls; a model does not choose its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dodona.core.domain.knowledge.threads import (
    ENTRY_TYPES,
    MAX_ENTRY_CHARS,
    MAX_TITLE_CHARS,
    NewEntry,
    ThreadLogs,
)
from dodona.core.messages import ToolSpec
from dodona.core.ports.journal import Effect
from dodona.core.ports.tools import ToolCategory, ToolContext, ToolOutput
from dodona.tools.registry import ToolRegistry
from dodona.tools.threads.entries import MAX_ID, build_source, citation_of

SPEC: Final = ToolSpec(
    "thread_push",
    "Add an entry to a thread, the project's log of thoughts and decisions. Entries are never "
    "changed or removed. Give 'thread_id', or the 'title' of a thread: one that there is not yet "
    "is begun.",
    {
        "type": "object",
        "properties": {
            "thread_id": {
                "type": "integer",
                "description": "The thread to add to.",
                "minimum": 1,
                "maximum": MAX_ID,
            },
            "title": {
                "type": "string",
                "description": "Instead of the id: what the thread is called, or is to be called.",
                "maxLength": MAX_TITLE_CHARS,
            },
            "entry_type": {
                "type": "string",
                "description": "What the entry is.",
                "enum": list(ENTRY_TYPES),
                "default": ENTRY_TYPES[0],
            },
            "content": {
                "type": "string",
                "description": "The entry, such as what was decided and why.",
                "minLength": 1,
                "maxLength": MAX_ENTRY_CHARS,
            },
        },
        "required": ["content"],
        "additionalProperties": False,
    },
)


def add(registry: ToolRegistry, logs: ThreadLogs) -> None:
    @registry.tool(SPEC, category=ToolCategory.THREAD, effect=Effect.KEYED, timeout_seconds=15)
    async def thread_push(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        title = arguments.get("title", "")
        entry = await logs.push(
            NewEntry(
                user_id=context.user_id,
                project_id=context.project_id,
                author=context.agent,
                entry_type=arguments["entry_type"],
                content=arguments["content"],
                thread_id=arguments.get("thread_id"),
                title=title,
                key=context.key,
            )
        )
        return ToolOutput(
            f"{citation_of(entry)}: {entry.entry_type} added.",
            (build_source(entry, " ".join(title.split()), entry.content),),
        )
