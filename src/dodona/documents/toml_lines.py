"""Where the keys of a TOML text stand: what `tomllib` knows and does not tell.

A path is the names that lead to a value, with a number for each place in an array:
`("agent", "fallback", "model")`, `("bindings", 0, "channel")`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from typing import TypeAlias

KeyPath: TypeAlias = tuple[str | int, ...]

# Longer keys are reported by whoever reads the index, and not followed: tomllib's work grows
# with the square of their length.
MAX_DEPTH = 64

_BLANK = re.compile(r"[ \t]*+")
_BLANK_LINES = re.compile(r"(?:[ \t\r\n]++|#[^\n]*+)*+")
_KEY_PART = re.compile(r"""[A-Za-z0-9_-]++|"(?:\\.|[^"\\\n])*+"|'[^'\n]*+'""")
_REST_OF_LINE = re.compile(r"[^\n]*+")
_SCALAR = re.compile(
    r'"""(?:\\.|(?!""")[^\\])*+"{3,5}'
    r"|'''(?:(?!''')[\s\S])*+'{3,5}"
    r'|"(?:\\.|[^"\\\n])*+"'
    r"|'[^'\n]*+'"
    r"""|[^,\[\]{}#\n"']++""",
    re.DOTALL,
)
# One name and one value on a line of their own, as most lines are: the rest is for the slow way.
_PLAIN_PAIR = re.compile(
    r"""([A-Za-z0-9_-]++)[ \t]*+=[ \t]*+("[^"\\\n]*+"|'[^'\n]*+'|[\w.+-]++)"""
    r"[ \t]*+(?:\#[^\n]*+|\r)?+\n"
)


def locate_keys(text: str) -> Mapping[KeyPath, int]:
    """The line on which each key first appears; of text that is no TOML, as far as it is."""
    walk = TomlWalker(text)
    walk.read()
    return walk.lines


class _Unexpected(Exception):
    """The text is not TOML from here on."""


class TomlWalker:
    """One pass over the text. It accepts more than TOML: telling mistakes is tomllib's part.

    Who wants more than lines overrides `on_header` and `on_pair`.
    """

    def __init__(self, text: str) -> None:
        self.lines: dict[KeyPath, int] = {}
        self._text = text
        self._position = 0
        self._line = 1
        self._table: KeyPath = ()
        self._sizes: dict[KeyPath, int] = {}  # of the arrays that [[headers]] grow

    def read(self) -> None:
        try:
            while not self._is_at_end():
                if self._read_plain_pair():
                    continue
                if self._consume("["):
                    self._read_header()
                else:
                    self._read_pair(self._table)
                self._skip(_REST_OF_LINE)
        except _Unexpected:
            return

    def on_header(self, path: KeyPath, start: int) -> None:
        """`[path]`, or `[[path]]` with the number of the element last, begins here."""

    def on_pair(self, table: KeyPath, path: KeyPath, start: int, value: tuple[int, int]) -> None:
        """A key of a section begins here, and its value spans these characters."""

    def _read_plain_pair(self) -> bool:
        found = _PLAIN_PAIR.match(self._text, self._position)
        if not found:
            return False
        path = self._record_line((*self._table, found[1]))
        self.on_pair(self._table, path, self._position, found.span(2))
        self._position = found.end()
        self._line += 1
        return True

    def _is_at_end(self) -> bool:
        self._skip(_BLANK_LINES)
        return self._position == len(self._text)

    def _read_header(self) -> None:
        start = self._position - 1
        is_array = self._consume("[")
        *above, last = self._read_key()
        path: KeyPath = ()
        for name in above:
            path = self._last_element(self._record_line((*path, name)))
        path = self._record_line((*path, last))
        if is_array:
            self._sizes[path] = self._sizes.get(path, 0) + 1
        self._table = self._record_line(self._last_element(path))
        self.on_header(self._table, start)

    def _last_element(self, path: KeyPath) -> KeyPath:
        """The last element, where the path leads to an array of tables."""
        return (*path, self._sizes[path] - 1) if path in self._sizes else path

    def _read_pair(self, table: KeyPath, *, is_inline: bool = False) -> None:
        start = self._position
        path = table
        for name in self._read_key():
            path = self._record_line((*path, name))
        if not self._consume("="):
            raise _Unexpected
        self._skip(_BLANK)
        value = self._position
        self._read_value(path)
        if not is_inline:
            self.on_pair(table, path, start, (value, self._position))

    def _read_value(self, path: KeyPath) -> None:
        if self._consume("["):
            self._read_array(path)
        elif self._consume("{"):
            self._read_inline_table(path)
        else:
            self._skip(_SCALAR)

    def _read_array(self, path: KeyPath) -> None:
        place = 0
        while not self._consume_closing("]"):
            self._read_value(self._record_line((*path, place)))
            self._skip(_BLANK_LINES)
            self._consume(",")
            place += 1

    def _read_inline_table(self, path: KeyPath) -> None:
        while not self._consume_closing("}"):
            self._read_pair(path, is_inline=True)
            self._skip(_BLANK_LINES)
            self._consume(",")

    def _consume_closing(self, bracket: str) -> bool:
        if self._is_at_end():
            raise _Unexpected
        return self._consume(bracket)

    def _read_key(self) -> list[str]:
        parts: list[str] = []
        while True:
            self._skip(_BLANK)
            found = _KEY_PART.match(self._text, self._position)
            if not found:
                raise _Unexpected
            self._position = found.end()
            if len(parts) <= MAX_DEPTH:
                parts.append(_unquote(found[0]))
            self._skip(_BLANK)
            if not self._consume("."):
                return parts

    def _record_line(self, path: KeyPath) -> KeyPath:
        self.lines.setdefault(path, self._line)
        return path

    def _consume(self, character: str) -> bool:
        taken = self._text.startswith(character, self._position)
        self._position += taken
        return taken

    def _skip(self, pattern: re.Pattern[str]) -> None:
        found = pattern.match(self._text, self._position)
        if not found:
            raise _Unexpected
        self._line += self._text.count("\n", self._position, found.end())
        self._position = found.end()


def _unquote(part: str) -> str:
    """The name that a key part spells."""
    if part[0] == "'":
        return part[1:-1]
    if part[0] == '"' and "\\" in part:
        try:
            return str(tomllib.loads(f"name = {part}")["name"])
        except tomllib.TOMLDecodeError:
            raise _Unexpected from None
    return part.strip('"')
