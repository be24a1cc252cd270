"""What the tools of code have in common: how code is shown, and what is said when there is none.

A block of code is headed by `path:first-last  title`, and indented: no line in it can pass for the
head of another.
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
    "This project has no code. Whoever runs Dodona can add some with: dodona index PATH, or in the "
    "project's code_paths."
)


def has_code(code: Code) -> bool:
    return not isinstance(code, NoCode)


async def format_indexing_note(code: Code) -> str:
    """A line that says so when the index is still being made."""
    state = await code.state()
    if state.is_complete:
        return ""
    return f"\n\n[Indexing goes on: {state.files:,} files so far. Ask again for the rest.]"


def format_block(path: str, first: int, last: int, *, title: str, text: str) -> str:
    head = f"{path}:{first}-{last}  {title}".rstrip()
    cut = text if len(text) <= MAX_BLOCK_CHARS else text[: MAX_BLOCK_CHARS - 1] + "…"
    lines = [" ".join(line.splitlines()) for line in cut.split("\n")]
    return "\n".join([head, *((INDENT + line).rstrip() for line in lines)])


def build_source(
    path: str, lines: tuple[int, int], *, title: str = "", excerpt: str = "", version: str = ""
) -> SourceReference:
    first, last = lines
    said = f"{first}–{last}" if last > first else str(first)
    return SourceReference(
        path, title, said, excerpt[:MAX_SOURCE_EXCERPT_CHARS], SourceKind.CODE, version
    )
