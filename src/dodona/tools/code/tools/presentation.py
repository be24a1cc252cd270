"""Shared by the code tools: how code is shown, and the answer when there is none.

A block of code has a head `path:first-last  title` and is indented, so no line in it can imitate
the head of another block.
"""

from __future__ import annotations

from typing import Final

from dodona.core.domain.knowledge.code import Code
from dodona.core.ports.tools import SourceKind, SourceReference, ToolOutput
from dodona.tools.code.code import NoCode

INDENT: Final = "    "
MAX_BLOCK_CHARS: Final = 2_500
MAX_SOURCE_EXCERPT_CHARS: Final = 300

NO_CODE: Final = ToolOutput(
    "This project has no code folders. The operator can add one with: dodona index PATH, or in the "
    "project's code_paths."
)


def has_code(code: Code) -> bool:
    """Whether the project has code folders."""
    return not isinstance(code, NoCode)


async def format_indexing_note(code: Code) -> str:
    """Return a note if the index is still being built, else ""."""
    state = await code.state()
    if state.is_complete:
        return ""
    return f"\n\n[Indexing is in progress: {state.files:,} files so far. Ask again for the rest.]"


def format_block(path: str, first: int, last: int, *, title: str, text: str) -> str:
    """Format lines of code as an indented block with a `path:first-last  title` head."""
    head = f"{path}:{first}-{last}  {title}".rstrip()
    shown = text if len(text) <= MAX_BLOCK_CHARS else text[: MAX_BLOCK_CHARS - 1] + "…"
    lines = [" ".join(line.splitlines()) for line in shown.split("\n")]
    return "\n".join([head, *((INDENT + line).rstrip() for line in lines)])


def build_source(
    path: str, lines: tuple[int, int], *, title: str = "", excerpt: str = "", version: str = ""
) -> SourceReference:
    """Return the source reference of some lines of code."""
    first, last = lines
    line_range = f"{first}–{last}" if last > first else str(first)
    return SourceReference(
        path, title, line_range, excerpt[:MAX_SOURCE_EXCERPT_CHARS], SourceKind.CODE, version
    )
