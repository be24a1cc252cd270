"""Entries of threads as a model reads them: a head with the place to cite, the text indented.

So no line of an entry can pass for the head of another.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from dodona.core.domain.knowledge.threads import ThreadEntry
from dodona.core.ports.tools import SourceKind, SourceReference

MAX_ID: Final = 10**18 - 1  # larger numbers fit no database
MAX_SOURCE_EXCERPT_CHARS: Final = 300
INDENT: Final = "    "


def citation_of(entry: ThreadEntry) -> str:
    """What an answer cites."""
    return f"thread:{entry.thread_id}#{entry.id}"


def format_date(timestamp: float) -> str:
    return datetime.fromtimestamp(timestamp, UTC).date().isoformat()


def format_entry(entry: ThreadEntry, title: str, text: str) -> str:
    """The head `thread:12#34  decision by oracle, 2026-11-16  title`, then text of the entry."""
    said = f"{entry.entry_type} by {entry.author}, {format_date(entry.created_at)}"
    lines = [" ".join(line.splitlines()) for line in text.split("\n")]
    return "\n".join(
        [f"{citation_of(entry)}  {said}  {title}", *((INDENT + line).rstrip() for line in lines)]
    )


def build_source(entry: ThreadEntry, title: str, text: str) -> SourceReference:
    return SourceReference(
        citation_of(entry),
        title,
        excerpt=text[:MAX_SOURCE_EXCERPT_CHARS].strip(),
        kind=SourceKind.THREAD,
    )
