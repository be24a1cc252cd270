"""find_definition: where a name is defined, with the beginning of what is defined there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from dodona.core.domain.knowledge.code import Code, CodeOf, Definition
from dodona.core.errors import DodonaError
from dodona.core.messages import ToolSpec
from dodona.core.ports.journal import Effect
from dodona.core.ports.tools import Category, ToolContext, ToolOutcome
from dodona.tools.code.index.definitions import LONGEST_NAME, is_in, split_name
from dodona.tools.code.tools.presentation import NO_CODE, block, has_code, source, unfinished
from dodona.tools.registry import ToolRegistry

MOST: Final = 20  # definitions
MOST_SHOWN: Final = 3  # of them, with their text
MOST_LINES: Final = 30  # of each

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
                "maxLength": LONGEST_NAME,
            }
        },
        "required": ["name"],
        "additionalProperties": False,
    },
)


def add(registry: ToolRegistry, code_of: CodeOf) -> None:
    @registry.tool(SPEC, category=Category.CODE, effect=Effect.NONE)
    async def find_definition(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        code = await code_of(context.user_id, context.project_id)
        if not has_code(code):
            return NO_CODE
        name = arguments["name"]
        found = await code.definitions(name, MOST)
        texts = [await _text(code, each) for each in found[:MOST_SHOWN]]
        texts += [each.signature for each in found[MOST_SHOWN:]]
        versions = await code.versions(tuple({each.path for each in found}))
        blocks = [
            block(each.path, each.first, each.last, title=_title(each), text=text)
            for each, text in zip(found, texts, strict=True)
        ]
        return ToolOutcome(
            "\n\n".join([*_remark(name, found), *blocks]) + await unfinished(code),
            tuple(
                source(
                    each.path,
                    (each.first, each.last),
                    title=_title(each),
                    excerpt=each.signature,
                    version=versions.get(each.path, ""),
                )
                for each in found
            ),
            entries=len(found),
        )


def _remark(name: str, found: Sequence[Definition]) -> list[str]:
    """What to know before the blocks: that the name is not there, or not as it was written."""
    if not found:
        return [f"'{name}' is not defined in the indexed code. search_code may find it in a text."]
    owners, last = split_name(name)
    if found[0].name == last:
        if not owners or is_in(found[0], owners):
            return []
        return [f"'{name}' is not defined in the indexed code. '{last}' is defined elsewhere:"]
    names = ", ".join(f"'{each}'" for each in dict.fromkeys(each.name for each in found))
    return [f"'{name}' is not defined in the indexed code. The nearest names are: {names}."]


def _title(found: Definition) -> str:
    return f"{found.kind} {f'{found.container}.' if found.container else ''}{found.name}"


async def _text(code: Code, found: Definition) -> str:
    """The first lines of a definition, or its signature if the file has gone."""
    last = min(found.last, found.first + MOST_LINES - 1)
    try:
        text = (await code.read(found.path, found.first, last)).text
    except DodonaError:
        return found.signature
    return f"{text}\n…" if last < found.last else text
