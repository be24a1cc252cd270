"""The words of code: identifiers whole and in their parts, in lower case.

`HttpClient2_pool` is httpclient2_pool, http, client, 2 and pool.
"""

from __future__ import annotations

import re
import threading
from typing import Final

MAX_WORD_BYTES: Final = 64  # bytes: what is longer is data
CACHE_SIZE: Final = 200_000

_SEPARATOR_TABLE: Final = bytes(
    byte if byte >= 0x80 or chr(byte).isalnum() or byte == ord("_") else 32 for byte in range(256)
)
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_WORD = re.compile(r"\w+")


def words_of(data: bytes) -> str:
    """Every word of a piece of code once, with its parts, between spaces."""
    known = _token_cache()
    if len(known) > CACHE_SIZE:
        known.clear()
    words = raw_words(data)
    return b" ".join(map(known.__getitem__, words)).decode("utf-8", "replace")


def raw_words(data: bytes) -> set[bytes]:
    """Identifiers, numbers and words of a piece of code as they stand there, each once."""
    if data.isascii():
        return set(data.translate(_SEPARATOR_TABLE).split())
    # Letters of other scripts are words, their dashes and quotes are not.
    return {word.encode() for word in _WORD.findall(data.decode("utf-8", "replace"))}


def parts_of(word: str) -> list[str]:
    """The parts of an identifier in lower case; only itself when it has but one."""
    if word.isascii():
        parts = [part.lower() for part in _PART.findall(word)]
    else:
        shape = "".join(map(_letter_class, word))
        parts = [word[found.start() : found.end()].lower() for found in _PART.finditer(shape)]
    return parts if len(parts) > 1 else [word.lower()]


def _letter_class(letter: str) -> str:
    """What stands for a letter of any script where words are cut."""
    if letter.isupper():
        return "A"
    if letter.isdecimal():
        return "0"
    return "a" if letter.isalnum() else "_"


class _TokenCache(dict[bytes, bytes]):
    """What each word is in the index. Most words of a file were in the one before."""

    def __missing__(self, word: bytes) -> bytes:
        found = b""
        if word.isdigit() or (word.islower() and word.isalpha()):
            found = word if len(word) <= MAX_WORD_BYTES else b""  # the quick way: it has no parts
        elif len(word) <= MAX_WORD_BYTES:
            text = word.decode("utf-8", "replace")
            whole = text.lower()
            found = " ".join(dict.fromkeys((whole, *parts_of(text)))).encode()
        self[word] = found
        return found


_thread_local = threading.local()


def _token_cache() -> _TokenCache:
    known: _TokenCache | None = getattr(_thread_local, "known", None)
    if known is None:
        known = _thread_local.known = _TokenCache()
    return known
