"""The vault and its tools."""

from __future__ import annotations

from dodona.tools.vault.note_history import NoteHistory
from dodona.tools.vault.project_notes import MarkedBlocks, ProjectNotes
from dodona.tools.vault.tools import TOOLS, add_vault_tools
from dodona.tools.vault.vault import Vault

__all__ = ["TOOLS", "MarkedBlocks", "NoteHistory", "ProjectNotes", "Vault", "add_vault_tools"]
