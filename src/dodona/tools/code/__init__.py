"""The code of a project and its tools, one module each."""

from __future__ import annotations

from dodona.core.domain.knowledge.code import CodeLoader
from dodona.tools.code.code import IndexedCode, NoCode
from dodona.tools.code.tools import definition, map, read, reference, search  # noqa: A004
from dodona.tools.registry import ToolRegistry

__all__ = ["TOOLS", "IndexedCode", "NoCode", "add_code_tools"]

TOOLS = (search, definition, reference, map, read)


def add_code_tools(registry: ToolRegistry, code_of: CodeLoader) -> None:
    """Register search_code, find_definition, find_references, get_repo_map and read_code."""
    for tool in TOOLS:
        tool.add(registry, code_of)
