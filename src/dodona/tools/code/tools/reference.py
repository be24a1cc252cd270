"""find_references: where a name is used, a line `path:line: text` for each place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dodona.core.domain.knowledge.code import CodeOf, Reference
from dodona.core.messages import ToolSpec
from dodona.core.ports.journal import Effect
from dodona.core.ports.tools import Category, ToolContext, ToolOutcome
from dodona.tools.code.index.definitions import LONGEST_NAME
from dodona.tools.code.tools.presentation import NO_CODE, has_code, source, unfinished
from dodona.tools.registry import ToolRegistry

SPEC: Final = ToolSpec(
    "find_references",
    "Find where a name is used in the project's code: calls, imports, reads; not in comments or "
    "strings, and not where it is defined. Returns lines 'path:line: text'.",
    {
        "type": "object",
        "properties": {
            "name": {
                "type": "string",
                "description": "The exact name, such as 'reserve'.",
                "minLength": 1,
                "maxLength": LONGEST_NAME,
            },
            "limit": {
                "type": "integer",
                "description": "The most places to return.",
                "minimum": 1,
                "maximum": 200,
                "default": 50,
            },
        },
        "required": ["name"],
        "additionalProperties": False,
    },
)


def add(registry: ToolRegistry, code_of: CodeOf) -> None:
    @registry.tool(SPEC, category=Category.CODE, effect=Effect.NONE)
    async def find_references(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        code = await code_of(context.user_id, context.project_id)
        if not has_code(code):
            return NO_CODE
        name, limit = arguments["name"], arguments["limit"]
        found = await code.references(name, limit)
        lines = [_line(each) for each in found]
        if not found:
            lines = [f"'{name}' is not used in the indexed code."]
        elif len(found) == limit:
            lines.append(f"[These are the first {limit}: there may be more.]")
        versions = await code.versions(tuple({each.path for each in found}))
        return ToolOutcome(
            "\n".join(lines) + await unfinished(code),
            tuple(
                source(
                    each.path,
                    (each.line, each.line),
                    title=each.container,
                    excerpt=each.text,
                    version=versions.get(each.path, ""),
                )
                for each in found
            ),
            entries=len(found),
        )


def _line(found: Reference) -> str:
    text = " ".join(found.text.splitlines())
    inside = f"  [in {found.container}]" if found.container else ""
    return f"{found.path}:{found.line}: {text}{inside}"
