"""How pages are put together."""

from __future__ import annotations

from itertools import compress
from textwrap import fill

NOTE = "<!-- Written by docs/generate.py: change that, or what it reads, and run `make docs`. -->"


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """A table; a column without a heading is left out when there is nothing in it."""
    used = [bool(head[i]) or any(row[i] for row in rows) for i in range(len(head))]
    head, *rows = [tuple(compress(cells, used)) for cells in (head, *rows)]
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def page(*parts: str) -> str:
    return "\n\n".join([parts[0], NOTE, *(part.strip("\n") for part in parts[1:])]) + "\n"


def prose(text: str) -> str:
    """A paragraph, or an item of a list, as lines of a page."""
    indent = "  " if text.startswith("- ") else ""
    words = " ".join(text.split())
    return fill(words, 95, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
