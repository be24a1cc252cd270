"""The vault and its tools, one module each."""

from __future__ import annotations

from dodona.core.domain.knowledge.notes import NotesLoader
from dodona.tools.registry import ToolRegistry
from dodona.tools.vault.tools import backlinks, create_index, move, read, search, tags, write
from dodona.tools.vault.tools import list as list_tool
from dodona.tools.vault.vault import Vault

__all__ = ["TOOLS", "Vault", "add_vault_tools"]

TOOLS = (backlinks, create_index, list_tool, move, read, search, tags, write)


def add_vault_tools(registry: ToolRegistry, notes_of: NotesLoader) -> None:
    """Register the tools that search, read, write and organize notes."""
    for tool in TOOLS:
        tool.add(registry, notes_of)
