"""The port of a project's code: indexed by its definitions, searched, followed by name.

Paths are relative to the folder that holds the code, with `/`; where a project has several, they
begin with the folder's name.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias


@dataclass(frozen=True, slots=True)
class Definition:
    """Where a name is defined: lines `first` to `last`. `container` is what it is defined in."""

    name: str
    kind: str  # class, function, method, variable, constant, type, module, …
    path: str
    first: int
    last: int
    signature: str = ""
    container: str = ""


@dataclass(frozen=True, slots=True)
class Reference:
    """A place where a name is used; `text` is its line, `container` what that line is in."""

    name: str
    path: str
    line: int
    column: int
    text: str
    container: str = ""


@dataclass(frozen=True, slots=True)
class CodeHit:
    """A piece of code that fits: lines `first` to `last`; the higher the score the better."""

    path: str
    first: int
    last: int
    title: str  # what is defined there, such as "class Meter > def reserve"
    text: str
    score: float = 0.0


@dataclass(frozen=True, slots=True)
class CodeText:
    """Some lines of a file, of `lines` in all; `version` changes with its content."""

    path: str
    first: int
    last: int
    text: str
    lines: int
    version: str


@dataclass(frozen=True, slots=True)
class IndexState:
    """What an index holds, and what the last look at the folders came to."""

    files: int
    indexed: int  # taken in anew by the last look
    unchanged: int
    removed: int
    skipped: int  # binary, too large, not text, ignored
    size: int  # bytes taken in by the last look
    chunks: int
    symbols: int
    seconds: float
    is_complete: bool = True  # False while it is being made


@dataclass(frozen=True, slots=True)
class IndexProgress:
    """How far an index has come."""

    done: int  # files
    total: int
    size: int  # bytes so far
    path: str = ""


class Code(Protocol):
    """One project's code."""

    async def search(self, query: str, limit: int) -> list[CodeHit]: ...

    async def definitions(self, name: str, limit: int) -> list[Definition]:
        """Where a name is defined; `Class.method` asks for the one in that class."""
        ...

    async def references(self, name: str, limit: int) -> list[Reference]: ...

    async def repo_map(self, tokens: int, focus: str = "") -> str:
        """The files and what they define, the most connected first, within so many tokens."""
        ...

    async def read(self, path: str, first: int = 1, last: int | None = None) -> CodeText: ...

    async def versions(self, paths: tuple[str, ...]) -> dict[str, str]:
        """The versions that files have now; those that are gone are missing."""
        ...

    async def refresh(self, progress: Callable[[IndexProgress], None] | None = None) -> IndexState:
        """Take in what has changed; what was interrupted goes on where it stopped."""
        ...

    async def state(self) -> IndexState: ...


CodeLoader: TypeAlias = Callable[[str, str], Awaitable[Code]]  # of a user's project
