"""The port of threads: append-only logs of thoughts and decisions, kept by project."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

AUTHORS: Final = ("user", "claude", "oracle", "librarian")
ENTRY_TYPES: Final = ("thought", "decision", "research", "insight")
MAX_TITLE_CHARS: Final = 200
MAX_ENTRY_CHARS: Final = 20_000  # characters


@dataclass(frozen=True, slots=True)
class ThreadSummary:
    """A thread in a list, with how many entries it has."""

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
    """Entries of a thread, the oldest first; `total` is how many there are in all."""

    thread: ThreadSummary
    entries: tuple[ThreadEntry, ...]
    total: int


@dataclass(frozen=True, slots=True)
class EntryHit:
    """An entry that fits; the higher the score the better."""

    entry: ThreadEntry
    title: str  # of its thread
    score: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEntry:
    """An entry to add, to a thread by its id, or to the one of a title, begun if need be.

    The same `key` adds it once, however often it is pushed.
    """

    user_id: str
    project_id: str
    author: str
    entry_type: str
    content: str
    thread_id: int | None = None
    title: str = ""
    key: str | None = None


class ThreadLogs(Protocol):
    """The threads of all users; another's are not found. What is wrong raises BadRequest."""

    async def push(self, entry: NewEntry) -> ThreadEntry: ...

    async def read(
        self, user_id: str, project_id: str, thread_id: int, *, after: int = 0, limit: int = 50
    ) -> ThreadPage:
        """A page of entries, those after an id; with `after=-1` the newest ones."""
        ...

    async def search(
        self, user_id: str, project_id: str, query: str, *, limit: int
    ) -> list[EntryHit]:
        """The entries of all the project's threads that fit the words best."""
        ...

    async def list(self, user_id: str, project_id: str, *, limit: int = 50) -> list[ThreadSummary]:
        """The threads, the latest first."""
        ...
