"""The port of a project's notes: a folder of Markdown files that can be searched and edited.

Paths are relative to the vault, use `/` and end in `.md`. Every method raises ToolRetry for an
invalid request, AccessDenied for a forbidden one, and ToolFailed if it cannot be done now.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Literal, Protocol, TypeAlias

import msgspec
from msgspec import Meta

from dodona.core.json_document import JsonDocument, Timestamp

NotePath: TypeAlias = Annotated[
    str, Meta(description="Relative to the vault, with `/`, ending in `.md`.")
]
NoteVersion: TypeAlias = Annotated[
    str, Meta(description="The version of the content. Send it when you change the note.")
]


class NoteSummary(JsonDocument):
    """A note in a list."""

    path: NotePath
    title: str
    tags: tuple[str, ...]
    modified_at: Timestamp
    size: Annotated[int, Meta(description="Size in bytes.")]


class NoteText(JsonDocument):
    """A note with its text."""

    path: NotePath
    title: str
    tags: tuple[str, ...]
    text: str
    lines: int
    version: NoteVersion
    is_cut: Annotated[bool, Meta(description="Whether `text` is truncated.")] = False


class NoteWriteResult(JsonDocument):
    """The note as it was written."""

    path: NotePath
    title: str
    lines: int
    version: NoteVersion
    outcome: Literal["created", "replaced", "unchanged"]


class NoteHit(msgspec.Struct, frozen=True):
    """A matching section of a note."""

    path: NotePath
    first: Annotated[int, Meta(description="The first line.")]
    last: Annotated[int, Meta(description="The last line.")]
    title: Annotated[str, Meta(description="The title of the note.")]
    headings: Annotated[str, Meta(description="The headings above these lines, outermost first.")]
    text: str
    score: Annotated[float, Meta(description="Higher is better; comparable within one search.")] = (
        0.0
    )


class Backlink(msgspec.Struct, frozen=True):
    """A line of a note that links to another."""

    path: Annotated[str, Meta(description="The note with the link.")]
    title: str
    line: int
    text: Annotated[str, Meta(description="The text of the line.")]


class NoteMove(msgspec.Struct, frozen=True):
    """A completed move of a note."""

    id: Annotated[int, Meta(description="The id to undo the move.")]
    path: Annotated[str, Meta(description="The old path.")]
    to: Annotated[str, Meta(description="The new path.")]
    relinked: Annotated[tuple[str, ...], Meta(description="Notes whose links were updated.")]
    moved_at: Timestamp


# One class in `tools` implements it: agent and gateway see tools as Protocols.
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
