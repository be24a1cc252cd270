"""Entries of threads as a model reads them: a head with the place to cite, the text indented.

So no line of an entry can pass for the head of another.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from dodona.core.domain.knowledge.threads import ThreadEntry
from dodona.core.ports.tools import Source, SourceKind

MOST_ID: Final = 10**18 - 1  # larger numbers fit no database
LONGEST_SOURCE: Final = 300
INDENT: Final = "    "


def place(entry: ThreadEntry) -> str:
    """What an answer cites."""
    return f"thread:{entry.thread_id}#{entry.id}"


def day(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).date().isoformat()


def block(entry: ThreadEntry, title: str, text: str) -> str:
    """The head `thread:12#34  decision by oracle, 2026-11-16  title`, then text of the entry."""
    said = f"{entry.entry_type} by {entry.author}, {day(entry.created_at)}"
    lines = [" ".join(line.splitlines()) for line in text.split("\n")]
    return "\n".join(
        [f"{place(entry)}  {said}  {title}", *((INDENT + line).rstrip() for line in lines)]
    )


def source(entry: ThreadEntry, title: str, text: str) -> Source:
    return Source(
        place(entry), title, excerpt=text[:LONGEST_SOURCE].strip(), kind=SourceKind.THREAD
    )
