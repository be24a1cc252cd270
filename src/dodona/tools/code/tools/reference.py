"""find_references: where a name is used, one line `path:line: text` per use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dodona.core.domain.knowledge.code import CodeLoader, Reference
from dodona.core.messages import ToolSpec
from dodona.core.ports.journal import Effect
from dodona.core.ports.tools import ToolCategory, ToolContext, ToolOutput
from dodona.tools.code.index.definitions import MAX_NAME_CHARS
from dodona.tools.code.tools.presentation import (
    NO_CODE,
    build_source,
    format_indexing_note,
    has_code,
)
from dodona.tools.registry import ToolRegistry

SPEC: Final = ToolSpec(
    "find_references",
    "Find where a name is used in the project's code: calls, imports and reads, but not comments, "
    "strings or definitions. Returns lines 'path:line: text'.",
    {
        "type": "object",
        "properties": {
            "name": {
                "type": "string",
                "description": "The exact name, such as 'reserve'.",
                "minLength": 1,
                "maxLength": MAX_NAME_CHARS,
            },
            "limit": {
                "type": "integer",
                "description": "The maximum number of uses to return.",
                "minimum": 1,
                "maximum": 200,
                "default": 50,
            },
        },
        "required": ["name"],
        "additionalProperties": False,
    },
)


def add(registry: ToolRegistry, code_of: CodeLoader) -> None:
    """Register find_references."""

    @registry.tool(SPEC, category=ToolCategory.CODE, effect=Effect.NONE)
    async def find_references(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        code = await code_of(context.user_id, context.project_id)
        if not has_code(code):
            return NO_CODE
        name, limit = arguments["name"], arguments["limit"]
        references = await code.references(name, limit)
        lines = [_format_reference(reference) for reference in references]
        if not references:
            lines = [f"'{name}' is not used in the indexed code."]
        elif len(references) == limit:
            lines.append(f"[Showing the first {limit}; there may be more.]")
        versions = await code.versions(tuple({reference.path for reference in references}))
        return ToolOutput(
            "\n".join(lines) + await format_indexing_note(code),
            tuple(
                build_source(
                    reference.path,
                    (reference.line, reference.line),
                    title=reference.container,
                    excerpt=reference.text,
                    version=versions.get(reference.path, ""),
                )
                for reference in references
            ),
            entry_count=len(references),
        )


def _format_reference(reference: Reference) -> str:
    text = " ".join(reference.text.splitlines())
    container = f"  [in {reference.container}]" if reference.container else ""
    return f"{reference.path}:{reference.line}: {text}{container}"
