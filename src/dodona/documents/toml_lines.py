"""Find the line of each key in a TOML text, which `tomllib` does not report.

A path is the sequence of names that leads to a value, with an index for each array element:
`("agent", "fallback", "model")`, `("bindings", 0, "channel")`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from typing import TypeAlias

KeyPath: TypeAlias = tuple[str | int, ...]

# Deeper keys are cut here and reported by the caller: tomllib takes time quadratic in their length.
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
# Fast path for most lines: one bare key and one scalar value. Other lines take the slow path.
_PLAIN_PAIR = re.compile(
    r"""([A-Za-z0-9_-]++)[ \t]*+=[ \t]*+("[^"\\\n]*+"|'[^'\n]*+'|[\w.+-]++)"""
    r"[ \t]*+(?:\#[^\n]*+|\r)?+\n"
)


def locate_keys(text: str) -> Mapping[KeyPath, int]:
    """Return the line on which each key first appears, up to the first syntax error."""
    walker = TomlWalker(text)
    walker.read()
    return walker.lines


class _Unexpected(Exception):
    """The text is not valid TOML from here on."""


class TomlWalker:
    """Walks over the text once and records the line of each key.

    It accepts more than TOML allows; syntax errors are left to tomllib. Subclasses override
    `on_header` and `on_pair` to collect more than lines.
    """

    def __init__(self, text: str) -> None:
        self.lines: dict[KeyPath, int] = {}
        self._text = text
        self._position = 0
        self._line = 1
        self._table: KeyPath = ()
        self._sizes: dict[KeyPath, int] = {}  # length of each [[array of tables]]

    def read(self) -> None:
        """Walk over the text, and stop silently at the first syntax error."""
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
        """A header `[path]` or `[[path]]` starts here; the latter ends with its index."""

    def on_pair(self, table: KeyPath, path: KeyPath, start: int, value: tuple[int, int]) -> None:
        """A key of a section starts here; `value` is the span of its value."""

    def _read_plain_pair(self) -> bool:
        match = _PLAIN_PAIR.match(self._text, self._position)
        if not match:
            return False
        path = self._record_line((*self._table, match[1]))
        self.on_pair(self._table, path, self._position, match.span(2))
        self._position = match.end()
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
        """Return the path of the last element, if the path is an array of tables."""
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
        index = 0
        while not self._consume_closing("]"):
            self._read_value(self._record_line((*path, index)))
            self._skip(_BLANK_LINES)
            self._consume(",")
            index += 1

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
            match = _KEY_PART.match(self._text, self._position)
            if not match:
                raise _Unexpected
            self._position = match.end()
            if len(parts) <= MAX_DEPTH:
                parts.append(_unquote(match[0]))
            self._skip(_BLANK)
            if not self._consume("."):
                return parts

    def _record_line(self, path: KeyPath) -> KeyPath:
        self.lines.setdefault(path, self._line)
        return path

    def _consume(self, character: str) -> bool:
        is_next = self._text.startswith(character, self._position)
        self._position += is_next
        return is_next

    def _skip(self, pattern: re.Pattern[str]) -> None:
        match = pattern.match(self._text, self._position)
        if not match:
            raise _Unexpected
        self._line += self._text.count("\n", self._position, match.end())
        self._position = match.end()


def _unquote(part: str) -> str:
    """Return the name of a bare or quoted key part."""
    if part[0] == "'":
        return part[1:-1]
    if part[0] == '"' and "\\" in part:
        try:
            return str(tomllib.loads(f"name = {part}")["name"])
        except tomllib.TOMLDecodeError:
            raise _Unexpected from None
    return part.strip('"')
