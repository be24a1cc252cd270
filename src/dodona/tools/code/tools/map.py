"""get_repo_map: the files that matter most, each with what it defines that others use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dodona.core.domain.knowledge.code import CodeLoader
from dodona.core.messages import ToolSpec
from dodona.core.ports.journal import Effect
from dodona.core.ports.tools import (
    SourceKind,
    SourceReference,
    ToolCategory,
    ToolContext,
    ToolOutput,
)
from dodona.tools.code.tools.presentation import NO_CODE, format_indexing_note, has_code
from dodona.tools.registry import ToolRegistry

MAX_FOCUS_CHARS: Final = 500

SPEC: Final = ToolSpec(
    "get_repo_map",
    "Show how the project's code is laid out: the most connected files first, each with the lines "
    "where it defines what others use. A focus puts what belongs to it first.",
    {
        "type": "object",
        "properties": {
            "tokens": {
                "type": "integer",
                "description": "How long the map may be.",
                "minimum": 100,
                "maximum": 20_000,
                "default": 1_500,
            },
            "focus": {
                "type": "string",
                "description": "Words or paths that you care about; empty for all.",
                "maxLength": MAX_FOCUS_CHARS,
                "default": "",
            },
        },
        "additionalProperties": False,
    },
)


def add(registry: ToolRegistry, code_of: CodeLoader) -> None:
    @registry.tool(SPEC, category=ToolCategory.CODE, effect=Effect.NONE)
    async def get_repo_map(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        code = await code_of(context.user_id, context.project_id)
        if not has_code(code):
            return NO_CODE
        text = await code.repo_map(arguments["tokens"], arguments["focus"])
        paths = [line for line in text.split("\n") if line and not line.startswith(" ")]
        versions = await code.versions(tuple(paths))
        return ToolOutput(
            (text or "There are no files in it yet.") + await format_indexing_note(code),
            tuple(
                SourceReference(path, kind=SourceKind.CODE, version=versions.get(path, ""))
                for path in paths
            ),
            entry_count=len(paths),
        )
