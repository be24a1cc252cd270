"""The port of a project's notes: a folder of Markdown, searched, read, written, put in order.

Paths are relative to the vault, with `/`, and end in `.md`. Every call raises ToolRetry for what
was asked wrongly, AccessDenied for what is not allowed, ToolFailed for what cannot be done now.
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
    """A note with its text; `is_cut` when there is more of it than is read."""

    path: str
    title: str
    tags: tuple[str, ...]
    text: str
    lines: int
    version: str
    is_cut: bool = False


@dataclass(frozen=True, slots=True)
class NoteWriteResult:
    """What became of a note; `version` is that of the new content."""

    path: str
    title: str
    lines: int
    version: str
    outcome: Literal["created", "replaced", "unchanged"]


@dataclass(frozen=True, slots=True)
class NoteHit:
    """A section that fits: lines `first` to `last` of a note; the higher the score the better."""

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
    """A move that was made: `id` undoes it. `relinked` are the notes whose links were changed."""

    id: int
    path: str
    to: str
    relinked: tuple[str, ...]
    moved_at: float


class Notes(Protocol):
    """One project's vault."""

    async def list(self, folder: str = "") -> list[NoteSummary]:
        """The notes of a folder and of those below it, in the order of paths."""
        ...

    async def read(self, path: str) -> NoteText: ...

    async def write(
        self, path: str, content: str, *, version: str | None = None
    ) -> NoteWriteResult:
        """Make the content the whole of a note, at once.

        With a version, only if the note still has it ("" is for a note that is not there yet).
        """
        ...

    async def search(self, query: str, limit: int) -> list[NoteHit]: ...

    async def find_relevant(self, question: str, limit: int) -> list[NoteSummary]:
        """The notes that may bear on a question, the best first, then the latest ones."""
        ...

    async def move(self, path: str, to: str) -> NoteMove:
        """Move a note, and change every wikilink to it. Made again, it changes nothing."""
        ...

    async def moves(self, limit: int = 20) -> list[NoteMove]:
        """The latest moves that can be undone, the newest first."""
        ...

    async def undo(self, move: int | None = None) -> NoteMove:
        """Take a move back, the latest by default; the move that did so."""
        ...

    async def create_index(self, folder: str, *, title: str = "") -> NoteWriteResult:
        """Write `index.md` into a folder: a link to each note below it, with a line about it.

        What people wrote around the list stays.
        """
        ...

    async def backlinks(self, path: str) -> list[Backlink]: ...

    async def tags(self) -> list[tuple[str, int]]:
        """Every tag with how many notes have it, the most frequent first."""
        ...

    async def versions(self, paths: tuple[str, ...]) -> dict[str, str]:
        """The versions that notes have now; those that are gone are missing."""
        ...


NotesLoader: TypeAlias = Callable[[str, str], Awaitable[Notes]]  # of a user's project
