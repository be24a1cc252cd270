"""vault_read: a whole note, headed by `path:1-last  title` so that lines can be cited."""

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
    "vault_read",
    "Read a note. Returns a line 'path:1-last  title', then the note from its first line on.",
    {
        "type": "object",
        "properties": {
            "path": {
                "type": "string",
                "description": "Relative to the vault, such as 'notes/plan.md'.",
                "minLength": 1,
            }
        },
        "required": ["path"],
        "additionalProperties": False,
    },
)


def add(registry: ToolRegistry, vault_of: VaultOf) -> None:
    @registry.tool(
        SPEC,
        category=Category.VAULT,
        agent_scope=("oracle", "librarian"),
        effect=Effect.NONE,
        timeout_seconds=10,
    )
    async def vault_read(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        reading = await (await vault_of(context)).read(arguments["path"])
        note = reading.note
        text = f"{note.path}:1-{note.lines}  {note.title}\n{reading.text}"
        if reading.is_cut:
            text += f"\n[The note goes on: these are its first {MOST_BYTES:,} bytes.]"
        return ToolOutcome(text, (Source(note.path, note.title, f"1–{note.lines}"),))
