"""The blocks of a note: paragraphs, and the names in its path, each with keys.

Marks of untrusted text are stored by key, so that they follow the text. A paragraph of at least
`MIN_COPIED_CHARS` characters has the same key in every note: a copy, a renamed note and a restored
file keep their marks. A shorter one could occur anywhere. It has a key for this path, and one that
includes the paragraphs before it as far as they are needed for that length. A long line of a
paragraph has the key that it would have as a paragraph, so that a blank line changes no marks.
"""

from __future__ import annotations

import re
import unicodedata
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

MIN_COPIED_CHARS: Final = 40
MAX_PARAGRAPHS: Final = 5_000  # per note; the text after them is one block

_BLANK_LINES: Final = re.compile(r"\n[^\S\n]*(?:\n[^\S\n]*)+")
_KEY_TYPE: Final = "q"  # 64 bits: a column of both databases
_PATH_KINDS: Final = ("name", "here")


@dataclass(frozen=True, slots=True)
class Block:
    """A paragraph: its text with single spaces, its keys, and those of its long lines."""

    text: str
    own_keys: tuple[int, ...]
    line_keys: tuple[int, ...] = ()

    @property
    def keys(self) -> tuple[int, ...]:
        return (*self.own_keys, *self.line_keys)


def find_blocks(path: str, text: str) -> list[Block]:
    """Return the paragraphs of a note in order."""
    paragraphs = _split_paragraphs(text)
    texts = [" ".join(lines) for lines in paragraphs]
    return [
        Block(texts[at], _block_keys(path, texts, at), _line_keys(lines))
        for at, lines in enumerate(paragraphs)
    ]


def _split_paragraphs(text: str) -> list[list[str]]:
    """Return the lines between blank lines, with single spaces."""
    paragraphs = _BLANK_LINES.split(text.replace("\r\n", "\n").replace("\r", "\n"), MAX_PARAGRAPHS)
    lines = ([" ".join(line.split()) for line in each.split("\n")] for each in paragraphs)
    return [found for each in lines if (found := list(filter(None, each)))]


def name_keys(path: str) -> list[int]:
    """Return the keys of a path: of the name of each folder, and of the note's own."""
    parts = path.split("/")
    return [name_key("/".join(parts[:depth])) for depth in range(1, len(parts) + 1)]


def name_key(path: str) -> int:
    """Return the key of the last name of a path."""
    return _hash("name", _fold_path(path))


def note_keys(path: str, text: str) -> list[int]:
    """Return the keys of all blocks of a note."""
    return [*name_keys(path), *(key for block in find_blocks(path, text) for key in block.keys)]


def pack_keys(keys: Iterable[int]) -> bytes:
    """Return keys as the value of a column."""
    return array(_KEY_TYPE, dict.fromkeys(keys)).tobytes()


def unpack_keys(data: bytes) -> Sequence[int]:
    """Return the keys in such a value."""
    keys = array(_KEY_TYPE)
    keys.frombytes(data)
    return keys


def _block_keys(path: str, texts: Sequence[str], at: int) -> tuple[int, ...]:
    if len(texts[at]) >= MIN_COPIED_CHARS:
        return (_hash("text", texts[at]),)
    return (_hash("here", _fold_path(path), texts[at]), *_context_key(texts, at))


def _line_keys(lines: Sequence[str]) -> tuple[int, ...]:
    if len(lines) == 1:
        return ()  # the paragraph itself
    return tuple(_hash("text", line) for line in lines if len(line) >= MIN_COPIED_CHARS)


def _context_key(texts: Sequence[str], at: int) -> Iterator[int]:
    """Yield the key of a short paragraph with those before it, if they are long enough."""
    length = 0
    for first in range(at, -1, -1):
        length += len(texts[first])
        if length >= MIN_COPIED_CHARS:
            yield _hash("context", *texts[first : at + 1])
            return


def _fold_path(path: str) -> str:
    """Return the path as file systems compare it: without case and Unicode encoding."""
    return unicodedata.normalize("NFC", path).casefold()


def is_path_key(key: int) -> bool:
    """Whether a key is for one path: it says nothing about other vaults."""
    return bool(key & 1)


def _hash(kind: str, *parts: str) -> int:
    data = "\0".join((kind, *parts)).encode(errors="surrogatepass")
    number = int.from_bytes(blake2b(data, digest_size=8).digest(), "big", signed=True)
    return number | 1 if kind in _PATH_KINDS else number & ~1
