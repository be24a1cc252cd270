"""The port of threads: append-only logs of thoughts and decisions in a project."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final, Literal, TypeAlias, get_args

from msgspec import Meta

from dodona.core.domain.trust import NO_MARKS, MarkList, Marks
from dodona.core.json_document import JsonDocument, Timestamp

Author: TypeAlias = Literal["user", "claude", "oracle", "librarian"]
EntryType: TypeAlias = Literal["thought", "decision", "research", "insight"]
AUTHORS: Final[tuple[str, ...]] = get_args(Author)
ENTRY_TYPES: Final[tuple[str, ...]] = get_args(EntryType)
MAX_TITLE_CHARS: Final = 200
MAX_ENTRY_CHARS: Final = 20_000  # characters


class ThreadSummary(JsonDocument):
    """A thread in a list, with its number of entries. Its marks are those of the title."""

    id: int
    title: str
    entries: Annotated[int, Meta(description="Number of entries.")]
    created_at: Timestamp
    updated_at: Timestamp
    marks: MarkList


class ThreadEntry(JsonDocument):
    """An entry of a thread."""

    id: int
    thread_id: int
    author: Author
    entry_type: EntryType
    content: str
    created_at: Timestamp
    marks: MarkList


class ThreadPage(JsonDocument):
    """A page of a thread's entries, oldest first."""

    thread: ThreadSummary
    entries: Annotated[tuple[ThreadEntry, ...], Meta(description="Oldest first.")]
    total: Annotated[int, Meta(description="Number of entries in the thread.")]


class EntryHit(ThreadEntry):
    """A matching entry. Its marks are those of the content and of the title."""

    title: Annotated[str, Meta(description="The title of the thread.")]
    score: Annotated[float, Meta(description="From 0 to 1; comparable within one search.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEntry:
    """An entry to append, to a thread by id, or by title, which creates the thread if needed.

    Pushing the same `key` again adds nothing. A thread that is created gets the marks too, for its
    title.
    """

    user_id: str
    project_id: str
    author: str
    entry_type: str
    content: str
    thread_id: int | None = None
    title: str = ""
    key: str | None = None
    marks: Marks = NO_MARKS
