"""vault_write: a note replaced as a whole.

Its effect is keyed: the same path and content leave the same note, however often they are written,
so a call that a crash cut is simply made again. Nothing is written when it is there already.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dodona.core.messages import ToolSpec
from dodona.core.ports import Effect
from dodona.core.tools import Category, Source, ToolContext, ToolOutcome
from dodona.tools.registry import ToolRegistry
from dodona.tools.vault.files import MOST_BYTES
from dodona.tools.vault.vault import VaultOf

SPEC: Final = ToolSpec(
    "vault_write",
    "Write a note: 'content' becomes the whole of it. A new note is created, with its folders; one "
    "that is there is replaced, so read it first to keep what is in it.",
    {
        "type": "object",
        "properties": {
            "path": {
                "type": "string",
                "description": "Relative to the vault, such as 'notes/plan.md'.",
                "minLength": 1,
            },
            "content": {
                "type": "string",
                "description": "Markdown, with front matter (title, tags) if you like.",
                "maxLength": MOST_BYTES,
            },
        },
        "required": ["path", "content"],
        "additionalProperties": False,
    },
)


def add(registry: ToolRegistry, vault_of: VaultOf) -> None:
    @registry.tool(
        SPEC,
        category=Category.VAULT,
        agent_scope=("oracle", "librarian"),
        effect=Effect.KEYED,
        timeout_seconds=15,
    )
    async def vault_write(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        vault = await vault_of(context)
        written, note = await vault.write(arguments["path"], arguments["content"])
        return ToolOutcome(
            f"{note.path}: {written.value}, {note.lines} lines.",
            (Source(note.path, note.title, f"1–{note.lines}"),),
        )
