"""vault_search: sections of notes by their words, each headed by `path:first-last  title`.

The text of a section is indented. So no line in a note can pass for the head of another.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dodona.core.messages import ToolSpec
from dodona.core.ports import Effect
from dodona.core.tools import Category, Source, ToolContext, ToolOutcome
from dodona.tools.registry import ToolRegistry
from dodona.tools.vault.finding import Hit
from dodona.tools.vault.query import LONGEST_QUERY
from dodona.tools.vault.vault import VaultOf

LONGEST_EXCERPT: Final = 2_000
LONGEST_SOURCE: Final = 300
INDENT: Final = "    "

SPEC: Final = ToolSpec(
    "vault_search",
    "Search the project's notes by words. Returns the best sections as blocks: a line "
    "'path:first-last  title > heading', then the text of these lines, indented. Quotes keep words "
    "together. Read the whole note with vault_read.",
    {
        "type": "object",
        "properties": {
            "query": {
                "type": "string",
                "description": "The words to look for, the more telling the better.",
                "minLength": 1,
                "maxLength": LONGEST_QUERY,
            },
            "limit": {
                "type": "integer",
                "description": "The most sections to return.",
                "minimum": 1,
                "maximum": 20,
                "default": 5,
            },
        },
        "required": ["query"],
        "additionalProperties": False,
    },
)


def add(registry: ToolRegistry, vault_of: VaultOf) -> None:
    @registry.tool(SPEC, category=Category.VAULT, effect=Effect.NONE)
    async def vault_search(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        vault = await vault_of(context)
        hits = await vault.search(arguments["query"], arguments["limit"])
        if not hits:
            return ToolOutcome("Nothing found.")
        return ToolOutcome("\n\n".join(map(_block, hits)), tuple(map(_source, hits)))


def _block(hit: Hit) -> str:
    title = " > ".join(filter(None, (hit.title, hit.headings)))
    head = f"{hit.path}:{hit.first}-{hit.last}  {title}"
    lines = [" ".join(line.splitlines()) for line in _excerpt(hit.text).split("\n")]
    return "\n".join([head, *((INDENT + line).rstrip() for line in lines)])


def _excerpt(text: str) -> str:
    return text if len(text) <= LONGEST_EXCERPT else text[: LONGEST_EXCERPT - 1] + "…"


def _source(hit: Hit) -> Source:
    return Source(hit.path, hit.title, f"{hit.first}–{hit.last}", hit.text[:LONGEST_SOURCE])
