"""The port of threads: append-only logs of thoughts and decisions in a project."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

AUTHORS: Final = ("user", "claude", "oracle", "librarian")
ENTRY_TYPES: Final = ("thought", "decision", "research", "insight")
MAX_TITLE_CHARS: Final = 200
MAX_ENTRY_CHARS: Final = 20_000  # characters


@dataclass(frozen=True, slots=True)
class ThreadSummary:
    """A thread in a list, with its number of entries."""

    id: int
    title: str
    entries: int
    created_at: float
    updated_at: float


@dataclass(frozen=True, slots=True)
class ThreadEntry:
    id: int
    thread_id: int
    author: str
    entry_type: str
    content: str
    created_at: float


@dataclass(frozen=True, slots=True)
class ThreadPage:
    """A page of a thread's entries, oldest first; `total` counts all entries of the thread."""

    thread: ThreadSummary
    entries: tuple[ThreadEntry, ...]
    total: int


@dataclass(frozen=True, slots=True)
class EntryHit:
    """A matching entry. A higher score is better."""

    entry: ThreadEntry
    title: str  # of its thread
    score: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEntry:
    """An entry to append, to a thread by id, or by title, which creates the thread if needed.

    Pushing the same `key` again adds nothing.
    """

    user_id: str
    project_id: str
    author: str
    entry_type: str
    content: str
    thread_id: int | None = None
    title: str = ""
    key: str | None = None
