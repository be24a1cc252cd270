"""Reading a call while it still arrives: parsers that wait in the middle of a word.

A parser is a generator. It yields when it needs more text, returns what it has read, and raises
`Mismatch` as soon as the text cannot be a call. What it has read it never reads again.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import TypeAlias, TypeVar

T = TypeVar("T")
IncrementalParser: TypeAlias = Generator[None, None, T]

MAX_WORD_CHARS = 128
_WORD = re.compile(r"[\w.:\-]*")


class Mismatch(Exception):
    """This is no call after all."""


class Cursor:
    """The text that has arrived and is not read yet."""

    __slots__ = ("ended", "rest")

    def __init__(self) -> None:
        self.rest = ""
        self.ended = False

    def wait_for_text(self) -> IncrementalParser[None]:
        """Wait for text; there is none after the end."""
        if self.ended:
            raise Mismatch
        yield

    def accept(self, literal: str) -> IncrementalParser[bool]:
        """Read exactly this, or nothing."""
        while len(self.rest) < len(literal) and literal.startswith(self.rest) and not self.ended:
            yield
        if not self.rest.startswith(literal):
            return False
        self.rest = self.rest[len(literal) :]
        return True

    def expect(self, literal: str) -> IncrementalParser[None]:
        if not (yield from self.accept(literal)):
            raise Mismatch

    def skip_blanks(self) -> IncrementalParser[bool]:
        """Skip blanks; does anything follow?"""
        while True:
            self.rest = self.rest.lstrip()
            if self.rest or self.ended:
                return bool(self.rest)
            yield

    def read_word(self) -> IncrementalParser[str]:
        """A name: letters, digits and `_ . : -`."""
        while True:
            match = _WORD.match(self.rest)
            length = match.end() if match else 0
            if length > MAX_WORD_CHARS:
                raise Mismatch
            if length < len(self.rest):
                word, self.rest = self.rest[:length], self.rest[length:]
                return word
            yield from self.wait_for_text()

    def read_until(self, literal: str) -> IncrementalParser[str]:
        """All before this, which is read too."""
        parts: list[str] = []
        while (at := self.rest.find(literal)) < 0:
            # All but the last characters can be let go: those may begin the literal.
            keep = max(len(self.rest) - len(literal) + 1, 0)
            parts.append(self.rest[:keep])
            self.rest = self.rest[keep:]
            yield from self.wait_for_text()
        parts.append(self.rest[:at])
        self.rest = self.rest[at + len(literal) :]
        return "".join(parts)

    def read_json(self, prefix: str = "") -> IncrementalParser[str]:
        """An object or array, to the bracket that closes it; its inside may still be no JSON.

        `read` is what has been read of it already.
        """
        self.rest = prefix + self.rest
        while not self.rest:
            yield from self.wait_for_text()
        if self.rest[0] not in "{[":
            raise Mismatch
        parts: list[str] = []
        brackets = _BracketCounter()
        while (end := brackets.find_end(self.rest)) < 0:
            parts.append(self.rest)
            self.rest = ""
            yield from self.wait_for_text()
        parts.append(self.rest[:end])
        self.rest = self.rest[end:]
        return "".join(parts)


class _BracketCounter:
    """Counts the open brackets of a JSON text, and knows its strings."""

    _MARK = re.compile(r'\\.?|["{}\[\]]', re.DOTALL)

    def __init__(self) -> None:
        self._depth = 0
        self._in_string = False
        self._escaped = False

    def find_end(self, text: str) -> int:
        """The position after the last bracket is closed; -1 while it is open."""
        start = 1 if self._escaped and text else 0
        self._escaped = self._escaped and not text
        for match in self._MARK.finditer(text, start):
            mark = match[0]
            if mark[0] == "\\":
                self._escaped = len(mark) == 1
            elif mark == '"':
                self._in_string = not self._in_string
            elif not self._in_string:
                self._depth += 1 if mark in "{[" else -1
                if not self._depth:
                    return match.end()
        return -1
