"""read_code: a file or some of its lines, headed by `path:first-last` for citing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dodona.core.domain.knowledge.code import CodeLoader
from dodona.core.messages import ToolSpec
from dodona.core.ports.journal import Effect
from dodona.core.ports.tools import ToolCategory, ToolContext, ToolOutput
from dodona.tools.code.tools.presentation import NO_CODE, build_source, has_code
from dodona.tools.registry import ToolRegistry

SPEC: Final = ToolSpec(
    "read_code",
    "Read a file of the project's code, or some of its lines. Returns a line 'path:first-last', "
    "then the lines, unchanged.",
    {
        "type": "object",
        "properties": {
            "path": {
                "type": "string",
                "description": "The path as the other tools return it, such as 'src/main.py'.",
                "minLength": 1,
            },
            "first": {"type": "integer", "description": "The first line to read.", "default": 1},
            "last": {"type": "integer", "description": "The last line to read; default: the end."},
        },
        "required": ["path"],
        "additionalProperties": False,
    },
)


def add(registry: ToolRegistry, code_of: CodeLoader) -> None:
    """Register read_code."""

    @registry.tool(SPEC, category=ToolCategory.CODE, effect=Effect.NONE)
    async def read_code(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        code = await code_of(context.user_id, context.project_id)
        if not has_code(code):
            return NO_CODE
        code_text = await code.read(arguments["path"], arguments["first"], arguments.get("last"))
        text = f"{code_text.path}:{code_text.first}-{code_text.last}\n{code_text.text}"
        if code_text.last < min(arguments.get("last", code_text.lines), code_text.lines):
            text += f"\n[The file continues: it has {code_text.lines:,} lines.]"
        source = build_source(
            code_text.path, (code_text.first, code_text.last), version=code_text.version
        )
        return ToolOutput(text, (source,))
