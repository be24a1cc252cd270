"""web_search: search results, each with `number. title`, the URL and a snippet."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from dodona.core.messages import Origin
from dodona.core.ports.journal import Effect
from dodona.core.ports.tools import (
    SourceKind,
    SourceReference,
    ToolCategory,
    ToolContext,
    ToolOutput,
)
from dodona.tools.presentation import INDENT, cut_text, integer, string, tool_spec
from dodona.tools.registry import ToolRegistry
from dodona.tools.web.engines import Hit, SearchEngine

MAX_QUERY_CHARS: Final = 500
MAX_TITLE_CHARS: Final = 200
MAX_SNIPPET_CHARS: Final = 500
TIMEOUT_MARGIN_SECONDS: Final = 5.0

NO_ENGINE: Final = (
    "No search engine is configured, so the web was not searched. The operator can set "
    "web.search in dodona.toml to searxng, brave or duckduckgo."
)

SPEC: Final = tool_spec(
    "web_search",
    "Search the web. Returns the best pages as blocks: a line 'number. title', then, indented, the "
    "URL and a snippet. Read a page with web_fetch.",
    required=("query",),
    query=string(
        "The search terms. They are sent to a search engine.",
        minLength=1,
        maxLength=MAX_QUERY_CHARS,
    ),
    limit=integer("The maximum number of pages to return.", minimum=1, maximum=20, default=8),
)


def add(registry: ToolRegistry, engine: SearchEngine | None, *, seconds: float) -> None:
    """Register web_search."""

    @registry.tool(
        SPEC,
        category=ToolCategory.WEB,
        effect=Effect.NONE,
        writes=False,
        reads_private=False,
        sends=engine is not None,
        origin=Origin.WEB if engine else Origin.PROJECT,  # without an engine the text is our own
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
        return ToolOutput(
            "\n\n".join(blocks),
            sources,
            entry_count=len(hits),
            found_urls=tuple(source.path for source in sources),
        )


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


# In tool results, a block headed by `notes/plan.md:3-9` comes from that place.
_LINE_REFERENCE = re.compile(r"(\.[A-Za-z]\w{0,5}):(?=\d)")


def one_line(text: str, max_chars: int) -> str:
    """Shorten a text to one line that cannot be mistaken for a place such as `plan.md:3`."""
    line = _LINE_REFERENCE.sub(r"\1 :", " ".join(text[: 4 * max_chars].split()))
    return cut_text(line, max_chars)
