"""read_code: a file or some of its lines, headed by `path:first-last` so that they can be cited."""

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
    "then these lines as they are.",
    {
        "type": "object",
        "properties": {
            "path": {
                "type": "string",
                "description": "As the other tools return it, such as 'src/main.py'.",
                "minLength": 1,
            },
            "first": {"type": "integer", "description": "From this line on.", "default": 1},
            "last": {"type": "integer", "description": "To this line; all of it by default."},
        },
        "required": ["path"],
        "additionalProperties": False,
    },
)


def add(registry: ToolRegistry, code_of: CodeLoader) -> None:
    @registry.tool(SPEC, category=ToolCategory.CODE, effect=Effect.NONE)
    async def read_code(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        code = await code_of(context.user_id, context.project_id)
        if not has_code(code):
            return NO_CODE
        found = await code.read(arguments["path"], arguments["first"], arguments.get("last"))
        text = f"{found.path}:{found.first}-{found.last}\n{found.text}"
        if found.last < min(arguments.get("last", found.lines), found.lines):
            text += f"\n[The file goes on: it has {found.lines:,} lines.]"
        place = build_source(found.path, (found.first, found.last), version=found.version)
        return ToolOutput(text, (place,))
