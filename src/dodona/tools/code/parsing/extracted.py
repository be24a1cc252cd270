"""Data extracted from a source file. Lines count from 1; columns from 0, in characters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


# Tuples, because there are tens of thousands: a frozen dataclass takes three times as long.
class CodeSymbol(NamedTuple):
    """A name that a file defines. `container` is the dotted path of its enclosing definitions."""

    name: str
    kind: str  # class, function, method, variable, constant, attribute, type, module, macro, …
    first: int
    last: int
    signature: str  # one line, without the body
    container: str


class CodeChunk(NamedTuple):
    """A range of lines; the title names the definition."""

    first: int
    last: int
    title: str  # "class Meter > def reserve", or ""


@dataclass(frozen=True, slots=True)
class Import:
    """An import statement as written in the file."""

    module: str  # "dodona.core.errors", "./util", "fmt"
    names: tuple[str, ...]
    line: int


@dataclass(frozen=True, slots=True)
class ExtractedFile:
    """A file's definitions, chunks and imports, and every word of its code.

    Each non-blank line is in exactly one chunk. `names` excludes comments and strings.
    """

    language: str
    symbols: tuple[CodeSymbol, ...]
    chunks: tuple[CodeChunk, ...]
    imports: tuple[Import, ...]
    names: frozenset[str]
