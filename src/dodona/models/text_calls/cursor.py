"""Incremental parsing: parsers that can pause at any character of a streamed text.

A parser is a generator. It yields when it needs more text, returns its result, and raises
`Mismatch` as soon as the text cannot be a call. No text is parsed twice.
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
    """The text is not a call."""


class Cursor:
    """The text that was received but not parsed yet."""

    __slots__ = ("ended", "rest")

    def __init__(self) -> None:
        self.rest = ""
        self.ended = False

    def wait_for_text(self) -> IncrementalParser[None]:
        """Wait for more text; raise Mismatch at the end of the stream."""
        if self.ended:
            raise Mismatch
        yield

    def accept(self, literal: str) -> IncrementalParser[bool]:
        """Consume the literal if it comes next, and return whether it did."""
        while len(self.rest) < len(literal) and literal.startswith(self.rest) and not self.ended:
            yield
        if not self.rest.startswith(literal):
            return False
        self.rest = self.rest[len(literal) :]
        return True

    def expect(self, literal: str) -> IncrementalParser[None]:
        """Consume the literal; raise Mismatch if something else comes next."""
        if not (yield from self.accept(literal)):
            raise Mismatch

    def skip_blanks(self) -> IncrementalParser[bool]:
        """Skip whitespace, and return whether any text follows."""
        while True:
            self.rest = self.rest.lstrip()
            if self.rest or self.ended:
                return bool(self.rest)
            yield

    def read_word(self) -> IncrementalParser[str]:
        """Read a name: letters, digits and `_ . : -`."""
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
        """Return the text before the literal, and consume both."""
        parts: list[str] = []
        while (position := self.rest.find(literal)) < 0:
            # The last characters may be the start of the literal; the rest can be consumed.
            size = max(len(self.rest) - len(literal) + 1, 0)
            parts.append(self.rest[:size])
            self.rest = self.rest[size:]
            yield from self.wait_for_text()
        parts.append(self.rest[:position])
        self.rest = self.rest[position + len(literal) :]
        return "".join(parts)

    def read_json(self, prefix: str = "") -> IncrementalParser[str]:
        """Read an object or array up to its closing bracket, without validating its content.

        `prefix` is the part of it that was already consumed.
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
    """Counts the open brackets of a JSON text, ignoring those in strings."""

    _MARK = re.compile(r'\\.?|["{}\[\]]', re.DOTALL)

    def __init__(self) -> None:
        self._depth = 0
        self._in_string = False
        self._escaped = False

    def find_end(self, text: str) -> int:
        """Return the position after the outermost closing bracket; -1 if it is still open."""
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
