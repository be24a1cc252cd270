"""The port of a project's code: an index of definitions, searched by text and by name.

Paths are relative to the code folder and use `/`; in a project with several folders, they start
with the name of the folder.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias


@dataclass(frozen=True, slots=True)
class Definition:
    """Where a name is defined: lines `first` to `last`. `container` is the enclosing definition."""

    name: str
    kind: str  # class, function, method, variable, constant, type, module, …
    path: str
    first: int
    last: int
    signature: str = ""
    container: str = ""


@dataclass(frozen=True, slots=True)
class Reference:
    """A use of a name; `text` is its line, `container` the enclosing definition."""

    name: str
    path: str
    line: int
    column: int
    text: str
    container: str = ""


@dataclass(frozen=True, slots=True)
class CodeHit:
    """A matching piece of code: lines `first` to `last`. A higher score is better."""

    path: str
    first: int
    last: int
    title: str  # the definition at this place, such as "class Meter > def reserve"
    text: str
    score: float = 0.0


@dataclass(frozen=True, slots=True)
class CodeText:
    """Lines of a file that has `lines` in total; `version` changes with the content."""

    path: str
    first: int
    last: int
    text: str
    lines: int
    version: str


@dataclass(frozen=True, slots=True)
class IndexState:
    """The size of an index, and the result of its last refresh."""

    files: int = 0
    indexed: int = 0  # new or changed files in the last full refresh
    unchanged: int = 0
    removed: int = 0
    skipped: int = 0  # binary, too large, not text, ignored
    size: int = 0  # bytes indexed in the last full refresh
    chunks: int = 0
    symbols: int = 0
    seconds: float = 0.0
    is_complete: bool = True  # False while the index is being built


@dataclass(frozen=True, slots=True)
class IndexProgress:
    """The progress of indexing."""

    done: int  # files
    total: int
    size: int  # bytes so far
    path: str = ""


class Code(Protocol):
    """One project's code."""

    async def search(self, query: str, limit: int) -> list[CodeHit]: ...

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
