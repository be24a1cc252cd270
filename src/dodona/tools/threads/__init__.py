"""The thread tools, one module each."""

from __future__ import annotations

from dodona.store.projects.threads import Threads
from dodona.tools.registry import ToolRegistry
from dodona.tools.threads import list as list_tool
from dodona.tools.threads import push, read, search

__all__ = ["TOOLS", "add_thread_tools"]

TOOLS = (list_tool, push, read, search)


def add_thread_tools(registry: ToolRegistry, logs: Threads) -> None:
    """Register thread_list, thread_push, thread_read and thread_seek."""
    for tool in TOOLS:
        tool.add(registry, logs)
