"""What is taken from a source file. Lines count from 1; columns from 0, in characters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


# Tuples, for there are tens of thousands of them: a frozen dataclass takes three times as long.
class CodeSymbol(NamedTuple):
    """A name that a file defines. `container` is the dotted path of what it is defined in."""

    name: str
    kind: str  # class, function, method, variable, constant, attribute, type, module, macro, …
    first: int
    last: int
    signature: str  # one line, without the body
    container: str


class CodeChunk(NamedTuple):
    """Some lines of a file that belong together; the title says what is defined there."""

    first: int
    last: int
    title: str  # "class Meter > def reserve", or ""


@dataclass(frozen=True, slots=True)
class Import:
    """What a file takes from another, as it is written there."""

    module: str  # "dodona.core.errors", "./util", "fmt"
    names: tuple[str, ...]
    line: int


@dataclass(frozen=True, slots=True)
class ExtractedFile:
    """A file's definitions, chunks and imports, and every word of its code.

    The chunks cover each non-blank line once. `names` leaves comments and strings out.
    """

    language: str
    symbols: tuple[CodeSymbol, ...]
    chunks: tuple[CodeChunk, ...]
    imports: tuple[Import, ...]
    names: frozenset[str]
