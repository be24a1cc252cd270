"""Formats thread entries for the model: a head with the citation, then the text, indented.

The indentation keeps a line of an entry from imitating the head of another.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from dodona.core.domain.knowledge.threads import ThreadEntry
from dodona.core.ports.tools import SourceKind, SourceReference

MAX_ID: Final = 10**18 - 1  # the databases do not accept larger numbers
MAX_SOURCE_EXCERPT_CHARS: Final = 300
INDENT: Final = "    "


def citation_of(entry: ThreadEntry) -> str:
    """Return the citation of an entry, such as `thread:12#34`."""
    return f"thread:{entry.thread_id}#{entry.id}"


def format_date(timestamp: float) -> str:
    """Format a Unix timestamp as a UTC date."""
    return datetime.fromtimestamp(timestamp, UTC).date().isoformat()


def format_entry(entry: ThreadEntry, title: str, text: str) -> str:
    """Format the head `thread:12#34  decision by oracle, 2026-11-16  title`, then the text."""
    description = f"{entry.entry_type} by {entry.author}, {format_date(entry.created_at)}"
    lines = [" ".join(line.splitlines()) for line in text.split("\n")]
    return "\n".join(
        [
            f"{citation_of(entry)}  {description}  {title}",
            *((INDENT + line).rstrip() for line in lines),
        ]
    )


def build_source(entry: ThreadEntry, title: str, text: str) -> SourceReference:
    """Return the source reference of an entry."""
    return SourceReference(
        citation_of(entry),
        title,
        excerpt=text[:MAX_SOURCE_EXCERPT_CHARS].strip(),
        kind=SourceKind.THREAD,
    )
