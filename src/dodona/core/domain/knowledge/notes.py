"""The port of a project's notes: a folder of Markdown files that can be searched and edited.

Paths are relative to the vault, use `/` and end in `.md`. Every method raises ToolRetry for an
invalid request, AccessDenied for a forbidden one, and ToolFailed if it cannot be done now.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias


@dataclass(frozen=True, slots=True)
class NoteSummary:
    """A note in a list; `modified` is in seconds since 1970."""

    path: str
    title: str
    tags: tuple[str, ...]
    modified: float
    size: int


@dataclass(frozen=True, slots=True)
class NoteText:
    """A note with its text; `is_cut` if the note is longer than the text."""

    path: str
    title: str
    tags: tuple[str, ...]
    text: str
    lines: int
    version: str
    is_cut: bool = False


@dataclass(frozen=True, slots=True)
class NoteWriteResult:
    """The result of writing a note; `version` is that of the new content."""

    path: str
    title: str
    lines: int
    version: str
    outcome: Literal["created", "replaced", "unchanged"]


@dataclass(frozen=True, slots=True)
class NoteHit:
    """A matching section: lines `first` to `last` of a note. A higher score is better."""

    path: str
    first: int
    last: int
    title: str
    headings: str
    text: str
    score: float = 0.0


@dataclass(frozen=True, slots=True)
class Backlink:
    """A line of a note that links to another."""

    path: str
    title: str
    line: int
    text: str


@dataclass(frozen=True, slots=True)
class NoteMove:
    """A completed move; `id` undoes it. `relinked` are the notes whose links were updated."""

    id: int
    path: str
    to: str
    relinked: tuple[str, ...]
    moved_at: float


class Notes(Protocol):
    """One project's vault."""

    @property
    def is_behind(self) -> bool:
        """Whether recent changes are still being indexed, so that results may lack them."""
        ...

    async def list(self, folder: str = "") -> list[NoteSummary]:
        """List the notes of a folder and its subfolders, ordered by path."""
        ...

    async def read(self, path: str) -> NoteText: ...

    async def write(
        self, path: str, content: str, *, version: str | None = None
    ) -> NoteWriteResult:
        """Replace the whole content of a note atomically.

        With a version, only if the note still has that version ("" for a note that does not exist).
        """
        ...

    async def search(self, query: str, limit: int) -> list[NoteHit]: ...

    async def find_relevant(self, question: str, limit: int) -> list[NoteSummary]:
        """Return notes relevant to a question, best first, then the latest ones."""
        ...

    async def move(self, path: str, to: str) -> NoteMove:
        """Move a note and update every wikilink to it. Idempotent."""
        ...

    async def moves(self, limit: int = 20) -> list[NoteMove]:
        """Return the latest moves that can be undone, newest first."""
        ...

    async def undo(self, move: int | None = None) -> NoteMove:
        """Undo a move, by default the latest, and return the reverse move."""
        ...

    async def create_index(self, folder: str, *, title: str = "") -> NoteWriteResult:
        """Write `index.md` into a folder: a link and a one-line description for each note below.

        Text that people wrote around the list is preserved.
        """
        ...

    async def backlinks(self, path: str) -> list[Backlink]: ...

    async def tags(self) -> list[tuple[str, int]]:
        """Return every tag with its number of notes, most frequent first."""
        ...

    async def versions(self, paths: tuple[str, ...]) -> dict[str, str]:
        """Return the current versions of notes; deleted notes are missing."""
        ...


NotesLoader: TypeAlias = Callable[[str, str], Awaitable[Notes]]  # of a user's project
