"""The vault and its tools."""

from __future__ import annotations

from dodona.tools.vault.tools import TOOLS, add_vault_tools
from dodona.tools.vault.vault import Vault

__all__ = ["TOOLS", "Vault", "add_vault_tools"]
