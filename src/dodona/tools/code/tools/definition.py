"""find_definition: where a name is defined, with the beginning of the definition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from dodona.core.domain.knowledge.code import Code, CodeLoader, Definition
from dodona.core.errors import DodonaError
from dodona.core.messages import ToolSpec
from dodona.core.ports.journal import Effect
from dodona.core.ports.tools import ToolCategory, ToolContext, ToolOutput
from dodona.tools.code.index.definitions import MAX_NAME_CHARS, is_owned_by, split_name
from dodona.tools.code.tools.presentation import (
    NO_CODE,
    build_source,
    format_block,
    format_indexing_note,
    has_code,
)
from dodona.tools.registry import ToolRegistry

MAX_DEFINITIONS: Final = 20
MAX_WITH_TEXT: Final = 3  # definitions shown with their code
MAX_LINES: Final = 30  # per definition

SPEC: Final = ToolSpec(
    "find_definition",
    "Find where a class, function, method, constant or type is defined in the project's code, by "
    "its exact name. Returns blocks: a line 'path:first-last  kind name', then its code, indented.",
    {
        "type": "object",
        "properties": {
            "name": {
                "type": "string",
                "description": "Such as 'Meter', 'Meter.reserve' or 'core.errors.DodonaError'.",
                "minLength": 1,
                "maxLength": MAX_NAME_CHARS,
            }
        },
        "required": ["name"],
        "additionalProperties": False,
    },
)


def add(registry: ToolRegistry, code_of: CodeLoader) -> None:
    """Register find_definition."""

    @registry.tool(SPEC, category=ToolCategory.CODE, effect=Effect.NONE)
    async def find_definition(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        code = await code_of(context.user_id, context.project_id)
        if not has_code(code):
            return NO_CODE
        name = arguments["name"]
        definitions = await code.definitions(name, MAX_DEFINITIONS)
        texts = [await _read_text(code, definition) for definition in definitions[:MAX_WITH_TEXT]]
        texts += [definition.signature for definition in definitions[MAX_WITH_TEXT:]]
        versions = await code.versions(tuple({definition.path for definition in definitions}))
        blocks = [
            format_block(
                definition.path,
                definition.first,
                definition.last,
                title=_format_title(definition),
                text=text,
            )
            for definition, text in zip(definitions, texts, strict=True)
        ]
        return ToolOutput(
            "\n\n".join([*_format_remark(name, definitions), *blocks])
            + await format_indexing_note(code),
            tuple(
                build_source(
                    definition.path,
                    (definition.first, definition.last),
                    title=_format_title(definition),
                    excerpt=definition.signature,
                    version=versions.get(definition.path, ""),
                )
                for definition in definitions
            ),
            entry_count=len(definitions),
        )


def _format_remark(name: str, definitions: Sequence[Definition]) -> list[str]:
    """Return a remark for the case that the exact name is not defined."""
    if not definitions:
        return [f"'{name}' is not defined in the indexed code. Try search_code."]
    owners, last = split_name(name)
    if definitions[0].name == last:
        if not owners or is_owned_by(definitions[0], owners):
            return []
        return [f"'{name}' is not defined in the indexed code. '{last}' is defined elsewhere:"]
    names = ", ".join(
        f"'{definition}'"
        for definition in dict.fromkeys(definition.name for definition in definitions)
    )
    return [f"'{name}' is not defined in the indexed code. The nearest names are: {names}."]


def _format_title(definition: Definition) -> str:
    container = f"{definition.container}." if definition.container else ""
    return f"{definition.kind} {container}{definition.name}"


async def _read_text(code: Code, definition: Definition) -> str:
    """Return the first lines of a definition, or its signature if the file is gone."""
    last = min(definition.last, definition.first + MAX_LINES - 1)
    try:
        text = (await code.read(definition.path, definition.first, last)).text
    except DodonaError:
        return definition.signature
    return f"{text}\n…" if last < definition.last else text
