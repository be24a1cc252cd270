"""The tools of threads, one file each."""

from __future__ import annotations

from dodona.core.thread_logs import ThreadLogs
from dodona.tools.registry import ToolRegistry
from dodona.tools.threads import list as list_tool
from dodona.tools.threads import push, read, seek

__all__ = ["add_thread_tools"]


def add_thread_tools(registry: ToolRegistry, logs: ThreadLogs) -> None:
    """Register thread_list, thread_push, thread_read and thread_seek."""
    for tool in (list_tool, push, read, seek):
        tool.add(registry, logs)
