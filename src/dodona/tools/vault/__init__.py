"""The vault and its tools, one file each."""

from __future__ import annotations

from dodona.tools.registry import ToolRegistry
from dodona.tools.vault import list as list_tool
from dodona.tools.vault import read, search, write
from dodona.tools.vault.vault import Vault, VaultOf

__all__ = ["Vault", "VaultOf", "add_vault_tools"]


def add_vault_tools(registry: ToolRegistry, vault_of: VaultOf) -> None:
    """Register vault_list, vault_read, vault_search and vault_write."""
    for tool in (list_tool, read, search, write):
        tool.add(registry, vault_of)
