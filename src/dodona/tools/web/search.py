"""web_search: pages by words, each as `number. title`, its address and what the engine quotes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from dodona.core.messages import Origin, ToolSpec
from dodona.core.ports.journal import Effect
from dodona.core.ports.tools import Category, Source, SourceKind, ToolContext, ToolOutcome
from dodona.tools.registry import ToolRegistry
from dodona.tools.web.engines import Engine, Hit

LONGEST_QUERY: Final = 500
LONGEST_TITLE: Final = 200
LONGEST_SNIPPET: Final = 500
INDENT: Final = "    "
SLACK_SECONDS: Final = 5.0

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
                "maxLength": LONGEST_QUERY,
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


def add(registry: ToolRegistry, engine: Engine | None, *, seconds: float) -> None:
    @registry.tool(
        SPEC,
        category=Category.WEB,
        effect=Effect.NONE,
        origin=Origin.WEB if engine else Origin.PROJECT,  # without one it has words of ours alone
        timeout_seconds=seconds + SLACK_SECONDS,
    )
    async def web_search(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        if engine is None:
            return ToolOutcome(NO_ENGINE)
        hits = await engine.search(arguments["query"], arguments["limit"])
        if not hits:
            return ToolOutcome("Nothing found.")
        sources = tuple(map(_source, hits))
        blocks = [_block(number, source) for number, source in enumerate(sources, start=1)]
        return ToolOutcome("\n\n".join(blocks), sources, entries=len(hits))


def _source(hit: Hit) -> Source:
    return Source(
        hit.url,
        one_line(hit.title, LONGEST_TITLE) or hit.url,
        excerpt=one_line(hit.snippet, LONGEST_SNIPPET),
        kind=SourceKind.WEB,
    )


def _block(number: int, source: Source) -> str:
    lines = [f"{number}. {source.title}", INDENT + source.path]
    return "\n".join([*lines, INDENT + source.excerpt] if source.excerpt else lines)


# `notes/plan.md:3-9` at the head of a block is the place of what follows, in what tools return.
_PLACE = re.compile(r"(\.[A-Za-z]\w{0,5}):(?=\d)")


def one_line(text: str, most: int) -> str:
    """The text in one line of at most so many characters, which cannot pass for a place."""
    line = _PLACE.sub(r"\1 :", " ".join(text[: 4 * most].split()))
    return line if len(line) <= most else line[: most - 1] + "…"
