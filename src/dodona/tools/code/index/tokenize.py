"""Tokenizes code: identifiers as a whole and in parts, in lower case.

`HttpClient2_pool` becomes httpclient2_pool, http, client, 2 and pool.
"""

from __future__ import annotations

import re
import threading
from typing import Final

MAX_WORD_BYTES: Final = 64  # longer words are data
CACHE_SIZE: Final = 200_000

_SEPARATOR_TABLE: Final = bytes(
    byte if byte >= 0x80 or chr(byte).isalnum() or byte == ord("_") else 32 for byte in range(256)
)
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_WORD = re.compile(r"\w+")


def words_of(data: bytes) -> str:
    """Return every distinct word of some code with its parts, separated by spaces."""
    cache = _token_cache()
    if len(cache) > CACHE_SIZE:
        cache.clear()
    words = raw_words(data)
    return b" ".join(map(cache.__getitem__, words)).decode("utf-8", "replace")


def raw_words(data: bytes) -> set[bytes]:
    """Return the distinct identifiers, numbers and words of some code, unchanged."""
    if data.isascii():
        return set(data.translate(_SEPARATOR_TABLE).split())
    # Non-ASCII letters are part of words; non-ASCII dashes and quotes are not.
    return {word.encode() for word in _WORD.findall(data.decode("utf-8", "replace"))}


def parts_of(word: str) -> list[str]:
    """Return the parts of an identifier in lower case; the word itself if it has one part."""
    if word.isascii():
        parts = [part.lower() for part in _PART.findall(word)]
    else:
        shape = "".join(map(_letter_class, word))
        parts = [word[match.start() : match.end()].lower() for match in _PART.finditer(shape)]
    return parts if len(parts) > 1 else [word.lower()]


def _letter_class(letter: str) -> str:
    """Map a letter of any script to an ASCII letter of its class."""
    if letter.isupper():
        return "A"
    if letter.isdecimal():
        return "0"
    return "a" if letter.isalnum() else "_"


class _TokenCache(dict[bytes, bytes]):
    """Tokens of each word. Most words of a file were already in the previous one."""

    def __missing__(self, word: bytes) -> bytes:
        tokens = b""
        if word.isdigit() or (word.islower() and word.isalpha()):
            tokens = word if len(word) <= MAX_WORD_BYTES else b""  # fast path: it has no parts
        elif len(word) <= MAX_WORD_BYTES:
            text = word.decode("utf-8", "replace")
            whole = text.lower()
            tokens = " ".join(dict.fromkeys((whole, *parts_of(text)))).encode()
        self[word] = tokens
        return tokens


_thread_local = threading.local()


def _token_cache() -> _TokenCache:
    cache: _TokenCache | None = getattr(_thread_local, "cache", None)
    if cache is None:
        cache = _thread_local.cache = _TokenCache()
    return cache
