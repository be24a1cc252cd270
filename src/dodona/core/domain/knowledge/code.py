"""The port of a project's code: an index of definitions, searched by text and by name.

Paths are relative to the code folder and use `/`; in a project with several folders, they start
with the name of the folder.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Protocol, TypeAlias

import msgspec
from msgspec import Meta

from dodona.core.json_document import JsonDocument

FirstLine: TypeAlias = Annotated[int, Meta(description="The first line, from 1.")]
Container: TypeAlias = Annotated[str, Meta(description="The enclosing definition; may be empty.")]


class Definition(msgspec.Struct, frozen=True):
    """Where a name is defined."""

    name: str
    kind: Annotated[str, Meta(description="class, function, method, constant, …")]
    path: str
    first: FirstLine
    last: int
    signature: str = ""
    container: Container = ""


class Reference(msgspec.Struct, frozen=True):
    """A use of a name."""

    name: str
    path: str
    line: Annotated[int, Meta(description="From 1.")]
    column: Annotated[int, Meta(description="From 0.")]
    text: Annotated[str, Meta(description="The text of the line.")]
    container: Container = ""


class CodeHit(msgspec.Struct, frozen=True):
    """A matching piece of code."""

    path: str
    first: FirstLine
    last: int
    title: Annotated[str, Meta(description="Its definition, such as class Meter > def reserve.")]
    text: str
    score: Annotated[float, Meta(description="From 0 to 1.")] = 0.0


class CodeText(JsonDocument):
    """Lines of a file."""

    path: str
    first: FirstLine
    last: int
    text: str
    lines: Annotated[int, Meta(description="Number of lines in the file.")]
    version: Annotated[str, Meta(description="Changes with the content.")]


class IndexState(JsonDocument):
    """The size of an index, and the result of its last refresh."""

    files: Annotated[int, Meta(description="Files in the index.")]
    indexed: Annotated[int, Meta(description="New or changed files in the last refresh.")]
    unchanged: int
    removed: int
    skipped: Annotated[int, Meta(description="Files that are ignored, binary or too large.")]
    size: Annotated[int, Meta(description="Bytes indexed in the last refresh.")]
    chunks: int
    symbols: int
    seconds: Annotated[float, Meta(description="Duration of the last refresh.")]
    is_complete: Annotated[bool, Meta(description="False while the index is being built.")] = True


@dataclass(frozen=True, slots=True)
class IndexProgress:
    """The progress of indexing."""

    done: int  # files
    total: int
    size: int  # bytes so far
    path: str = ""


class Code(Protocol):
    """One project's code: indexed, or none at all."""

    async def search(self, query: str, limit: int) -> list[CodeHit]: ...

    async def count_words(self, words: Sequence[str]) -> tuple[int, dict[str, int]]:
        """Return the number of chunks, and for each word how many have it or a longer form."""
        ...

    async def definitions(self, name: str, limit: int) -> list[Definition]:
        """Find where a name is defined; `Class.method` finds the method of that class."""
        ...

    async def references(self, name: str, limit: int) -> list[Reference]: ...

    async def repo_map(self, tokens: int, focus: str = "") -> str:
        """Render the files and their definitions, most connected first, within a token budget."""
        ...

    async def read(self, path: str, first: int = 1, last: int | None = None) -> CodeText: ...

    async def versions(self, paths: tuple[str, ...]) -> dict[str, str]:
        """Return the current versions of files; deleted files are missing."""
        ...

    async def refresh(self, progress: Callable[[IndexProgress], None] | None = None) -> IndexState:
        """Index all changes; an interrupted refresh continues where it stopped."""
        ...

    async def state(self) -> IndexState: ...


CodeLoader: TypeAlias = Callable[[str, str], Awaitable[Code]]  # of a user's project
