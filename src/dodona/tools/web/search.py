"""web_search: pages by words, each as `number. title`, its address and what the engine quotes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from dodona.core.messages import Origin, ToolSpec
from dodona.core.ports.journal import Effect
from dodona.core.ports.tools import (
    SourceKind,
    SourceReference,
    ToolCategory,
    ToolContext,
    ToolOutput,
)
from dodona.tools.registry import ToolRegistry
from dodona.tools.web.engines import Hit, SearchEngine

MAX_QUERY_CHARS: Final = 500
MAX_TITLE_CHARS: Final = 200
MAX_SNIPPET_CHARS: Final = 500
INDENT: Final = "    "
TIMEOUT_MARGIN_SECONDS: Final = 5.0

NO_ENGINE: Final = (
    "No search engine is configured, so the web was not searched. The operator can name one: "
    "web.search in dodona.toml is searxng, brave or duckduckgo."
)

SPEC: Final = ToolSpec(
    "web_search",
    "Search the web. Returns the best pages as blocks: a line 'number. title', then indented the "
    "address and a few words of the page. Read a page with web_fetch.",
    {
        "type": "object",
        "properties": {
            "query": {
                "type": "string",
                "description": "The words to look for. They are sent to a search engine.",
                "minLength": 1,
                "maxLength": MAX_QUERY_CHARS,
            },
            "limit": {
                "type": "integer",
                "description": "The most pages to return.",
                "minimum": 1,
                "maximum": 20,
                "default": 8,
            },
        },
        "required": ["query"],
        "additionalProperties": False,
    },
)


def add(registry: ToolRegistry, engine: SearchEngine | None, *, seconds: float) -> None:
    @registry.tool(
        SPEC,
        category=ToolCategory.WEB,
        effect=Effect.NONE,
        origin=Origin.WEB if engine else Origin.PROJECT,  # without one it has words of ours alone
        timeout_seconds=seconds + TIMEOUT_MARGIN_SECONDS,
    )
    async def web_search(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        if engine is None:
            return ToolOutput(NO_ENGINE)
        hits = await engine.search(arguments["query"], arguments["limit"])
        if not hits:
            return ToolOutput("Nothing found.")
        sources = tuple(map(_build_source, hits))
        blocks = [_format_source(number, source) for number, source in enumerate(sources, start=1)]
        return ToolOutput("\n\n".join(blocks), sources, entry_count=len(hits))


def _build_source(hit: Hit) -> SourceReference:
    return SourceReference(
        hit.url,
        one_line(hit.title, MAX_TITLE_CHARS) or hit.url,
        excerpt=one_line(hit.snippet, MAX_SNIPPET_CHARS),
        kind=SourceKind.WEB,
    )


def _format_source(number: int, source: SourceReference) -> str:
    lines = [f"{number}. {source.title}", INDENT + source.path]
    return "\n".join([*lines, INDENT + source.excerpt] if source.excerpt else lines)


# `notes/plan.md:3-9` at the head of a block is the place of what follows, in what tools return.
_LINE_REFERENCE = re.compile(r"(\.[A-Za-z]\w{0,5}):(?=\d)")


def one_line(text: str, max_chars: int) -> str:
    """The text in one line of at most so many characters, which cannot pass for a place."""
    line = _LINE_REFERENCE.sub(r"\1 :", " ".join(text[: 4 * max_chars].split()))
    return line if len(line) <= max_chars else line[: max_chars - 1] + "…"
