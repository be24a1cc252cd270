"""The port of a project's notes: a folder of Markdown files that can be searched and edited.

Paths are relative to the vault, use `/` and end in `.md`. Every method raises ToolRetry for an
invalid request, AccessDenied for a forbidden one, and ToolFailed if it cannot be done now.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Literal, Protocol, TypeAlias

import msgspec
from msgspec import Meta

from dodona.core.domain.trust import NO_MARKS, Mark, Marks
from dodona.core.json_document import JsonDocument, Timestamp

NotePath: TypeAlias = Annotated[
    str, Meta(description="Relative to the vault, with `/`, ending in `.md`.")
]
NoteVersion: TypeAlias = Annotated[
    str, Meta(description="The version of the content. Send it when you change the note.")
]
NoteMarks: TypeAlias = Annotated[
    tuple[Mark, ...],
    Meta(description="The untrusted sources of the note; empty if there are none."),
]


@dataclass(frozen=True, slots=True)
class NoteAuthor:
    """Who changes notes: an agent, or the user. The written text gets `marks`."""

    name: str = "user"
    marks: Marks = NO_MARKS


USER_AUTHOR: Final = NoteAuthor()


class NoteSummary(JsonDocument):
    """A note in a list."""

    path: NotePath
    title: str
    tags: tuple[str, ...]
    modified_at: Timestamp
    size: Annotated[int, Meta(description="Size in bytes.")]
    marks: NoteMarks = ()


class NoteText(JsonDocument):
    """A note with its text."""

    path: NotePath
    title: str
    tags: tuple[str, ...]
    text: str
    lines: int
    version: NoteVersion
    is_cut: Annotated[bool, Meta(description="Whether `text` is truncated.")] = False
    marks: NoteMarks = ()


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
    marks: NoteMarks = ()


class Backlink(msgspec.Struct, frozen=True):
    """A line of a note that links to another."""

    path: Annotated[str, Meta(description="The note with the link.")]
    title: str
    line: int
    text: Annotated[str, Meta(description="The text of the line.")]
    marks: NoteMarks = ()


class NoteTag(msgspec.Struct, frozen=True):
    """A tag. Its marks are those of the notes that have it."""

    tag: str
    notes: Annotated[int, Meta(description="Number of notes with the tag.")]
    marks: NoteMarks = ()


class NoteMove(msgspec.Struct, frozen=True):
    """A completed move of a note."""

    id: Annotated[int, Meta(description="The id to undo the move.")]
    path: Annotated[str, Meta(description="The old path.")]
    to: Annotated[str, Meta(description="The new path.")]
    relinked: Annotated[tuple[str, ...], Meta(description="Notes whose links were updated.")]
    moved_at: Timestamp
    marks: Annotated[
        tuple[Mark, ...], Meta(description="The untrusted sources of the notes named here.")
    ] = ()


class NoteHistoryEntry(JsonDocument):
    """An entry of the history of notes: a stored version, or a move."""

    id: Annotated[int, Meta(description="The id to show, compare or undo the change.")]
    path: NotePath
    action: Annotated[
        Literal["external", "write", "index", "move", "undo"],
        Meta(description="`external` is a text of another program that Dodona found."),
    ]
    author: Annotated[str, Meta(description="The agent, or `user`; empty if unknown.")]
    written_at: Timestamp
    size: Annotated[int, Meta(description="Size in bytes; 0 for a move or a removed note.")]
    version: Annotated[str, Meta(description="The version; empty for a move or a removed note.")]
    old_version: Annotated[str, Meta(description="The version before; empty if there was none.")]
    from_path: Annotated[str | None, Meta(description="The old path of a moved note.")] = None
    undoes: Annotated[int | None, Meta(description="The id of the undone change.")] = None
    is_current: Annotated[bool, Meta(description="Whether the note has this version now.")] = False
    marks: NoteMarks = ()


class MarkedText(msgspec.Struct, frozen=True):
    """A paragraph of a note, or a name in its path, that comes from untrusted sources."""

    text: str
    marks: NoteMarks


class NoteReview(JsonDocument):
    """The marked parts of a note."""

    path: NotePath
    version: NoteVersion
    marks: NoteMarks
    parts: tuple[MarkedText, ...]


class NoteVersionText(JsonDocument):
    """A stored version of a note with its text."""

    entry: NoteHistoryEntry
    text: str
    previous_id: Annotated[
        int | None, Meta(description="The id of the version before, if it is still stored.")
    ] = None


class NoteUndo(JsonDocument):
    """An undone change. It is a change too, and can be undone."""

    id: Annotated[int, Meta(description="The id to undo the undo.")]
    path: NotePath
    to: Annotated[str, Meta(description="The path now; differs if a move was undone.")]
    outcome: Literal["restored", "removed", "moved"]
    version: Annotated[str, Meta(description="The restored version; empty otherwise.")] = ""
    relinked: Annotated[tuple[str, ...], Meta(description="Notes whose links were updated.")] = ()
    marks: NoteMarks = ()


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

    async def folder_marks(self, folders: tuple[str, ...]) -> Mapping[str, Marks]:
        """Return the marks of the names of folders, without those of the notes in them."""
        ...

    async def write(
        self,
        path: str,
        content: str,
        *,
        version: str | None = None,
        author: NoteAuthor = USER_AUTHOR,
    ) -> NoteWriteResult:
        """Replace the whole content of a note atomically.

        With a version, only if the note still has that version ("" for a note that does not exist).
        """
        ...

    async def search(self, query: str, limit: int) -> list[NoteHit]: ...

    async def search_sections(self, words: Sequence[str], limit: int) -> list[NoteHit]:
        """Return whole sections with any of the words, unranked."""
        ...

    async def count_words(self, words: Sequence[str]) -> tuple[int, dict[str, int]]:
        """Return the number of sections, and for each word how many have it."""
        ...

    async def find_relevant(self, question: str, limit: int) -> list[NoteSummary]:
        """Return notes relevant to a question, best first, then the latest ones."""
        ...

    async def move(self, path: str, to: str, *, author: NoteAuthor = USER_AUTHOR) -> NoteMove:
        """Move a note and update every wikilink to it. Idempotent."""
        ...

    async def moves(self, limit: int = 20) -> list[NoteMove]:
        """Return the latest moves that can be undone, newest first."""
        ...

    async def history(self, path: str | None = None, limit: int = 20) -> list[NoteHistoryEntry]:
        """Return the changes of all notes or of one, newest first."""
        ...

    async def version(self, change: int) -> NoteVersionText:
        """Return a stored version of a note."""
        ...

    async def undo(self, change: int | None = None) -> NoteUndo:
        """Undo a write or a move, by default the latest, if the note has not changed since."""
        ...

    async def create_index(
        self, folder: str, *, title: str = "", author: NoteAuthor = USER_AUTHOR
    ) -> NoteWriteResult:
        """Write `index.md` into a folder: a link and a one-line description for each note below.

        Text that people wrote around the list is preserved.
        """
        ...

    async def review(self, path: str, version: str) -> NoteReview:
        """Clear the marks of this version of a note; return its marked parts."""
        ...

    async def backlinks(self, path: str) -> list[Backlink]: ...

    async def tags(self) -> list[NoteTag]:
        """Return every tag with its number of notes, most frequent first."""
        ...

    async def versions(self, paths: tuple[str, ...]) -> dict[str, str]:
        """Return the current versions of notes; deleted notes are missing."""
        ...


NotesLoader: TypeAlias = Callable[[str, str], Awaitable[Notes]]  # of a user's project
