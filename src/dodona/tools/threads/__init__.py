"""The tools of threads, one file each."""

from __future__ import annotations

from dodona.core.domain.knowledge.threads import ThreadLogs
from dodona.tools.registry import ToolRegistry
from dodona.tools.threads import list as list_tool
from dodona.tools.threads import push, read
from dodona.tools.threads import search as seek

__all__ = ["TOOLS", "add_thread_tools"]

TOOLS = (list_tool, push, read, seek)


def add_thread_tools(registry: ToolRegistry, logs: ThreadLogs) -> None:
    """Register thread_list, thread_push, thread_read and thread_seek."""
    for tool in TOOLS:
        tool.add(registry, logs)
