"""get_repo_map: the most important files, each with the definitions that others use."""

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
    "Show an overview of the project's code: the most connected files first, each with the lines "
    "of the definitions that others use. A focus puts matching files first.",
    {
        "type": "object",
        "properties": {
            "tokens": {
                "type": "integer",
                "description": "The maximum length of the map, in tokens.",
                "minimum": 100,
                "maximum": 20_000,
                "default": 1_500,
            },
            "focus": {
                "type": "string",
                "description": "Words or paths to focus on; empty for none.",
                "maxLength": MAX_FOCUS_CHARS,
                "default": "",
            },
        },
        "additionalProperties": False,
    },
)


def add(registry: ToolRegistry, code_of: CodeLoader) -> None:
    """Register get_repo_map."""

    @registry.tool(SPEC, category=ToolCategory.CODE, effect=Effect.NONE)
    async def get_repo_map(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        code = await code_of(context.user_id, context.project_id)
        if not has_code(code):
            return NO_CODE
        text = await code.repo_map(arguments["tokens"], arguments["focus"])
        paths = [line for line in text.split("\n") if line and not line.startswith(" ")]
        versions = await code.versions(tuple(paths))
        return ToolOutput(
            (text or "There are no indexed files yet.") + await format_indexing_note(code),
            tuple(
                SourceReference(path, kind=SourceKind.CODE, version=versions.get(path, ""))
                for path in paths
            ),
            entry_count=len(paths),
        )
