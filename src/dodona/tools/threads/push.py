"""thread_push: adds an entry to a thread; a new title starts a new thread.

The effect is keyed: a call repeated after a crash adds the entry only once. The author is the
calling agent; a model cannot choose it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dodona.core.domain.knowledge.threads import (
    ENTRY_TYPES,
    MAX_ENTRY_CHARS,
    MAX_TITLE_CHARS,
    NewEntry,
)
from dodona.core.messages import ToolSpec
from dodona.core.ports.journal import Effect
from dodona.core.ports.tools import ToolCategory, ToolContext, ToolOutput
from dodona.store.projects.threads import Threads
from dodona.tools.registry import ToolRegistry
from dodona.tools.threads.entries import MAX_ID, build_source, citation_of

SPEC: Final = ToolSpec(
    "thread_push",
    "Add an entry to a thread, the project's log of thoughts and decisions. Entries are never "
    "changed or removed. Give 'thread_id', or the 'title' of a thread; a new title starts a new "
    "thread.",
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
                "description": "The title of a new or existing thread, instead of its id.",
                "maxLength": MAX_TITLE_CHARS,
            },
            "entry_type": {
                "type": "string",
                "description": "The kind of entry.",
                "enum": list(ENTRY_TYPES),
                "default": ENTRY_TYPES[0],
            },
            "content": {
                "type": "string",
                "description": "The text of the entry, such as a decision and its reason.",
                "minLength": 1,
                "maxLength": MAX_ENTRY_CHARS,
            },
        },
        "required": ["content"],
        "additionalProperties": False,
    },
)


def add(registry: ToolRegistry, logs: Threads) -> None:
    """Register thread_push."""

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
