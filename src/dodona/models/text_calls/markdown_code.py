"""Detect code and block quotes in streamed Markdown.

Recognizes inline code and fences of ``` and ~~~, also unclosed ones. In doubt, text counts as
code: a fence closes only as CommonMark specifies, and an unclosed inline backtick extends to the
end of its paragraph. Indented code blocks are not recognized. A block quote ends at a blank line.
"""

from __future__ import annotations

import re

_PIECE = re.compile(r"`+|~+|\n|[^`~\n]+")
# Text allowed before a fence: indentation, quote markers, list markers.
_MARGIN = re.compile(r"[\s>*+\-0-9.)]*\Z")
_QUOTE = re.compile(r"[\s*+\-0-9.)]*>")
_TAB_WIDTH = 4
_MAX_EXTRA_INDENT = 3  # of a closing fence, relative to the opening one


class MarkdownCode:
    """Tracks a text, to know whether the next character is code or quoted."""

    def __init__(self) -> None:
        self._fence: str = ""  # the character of the open fence
        self._inline: bool = False
        self._opening_length: int = 0  # of the run that opened the code
        self._indent = 0  # of the open fence
        self._was_quoted = False  # the open fence is inside a block quote
        self._in_info = False  # on the line that opened the fence
        self._closing = False  # a closing fence was read; only whitespace may follow it
        self._run = ""  # the character of a run that may continue
        self._run_length = 0
        self._in_quote = False
        self._start_line()

    def _start_line(self) -> None:
        self._blank = True  # only whitespace so far
        self._bare = True  # only whitespace and quote markers so far
        self._margin = True  # a fence can still start on this line
        self._width = 0

    def feed(self, text: str) -> None:
        """Process the next piece of text."""
        for match in _PIECE.finditer(text):
            piece = match[0]
            if piece[0] in "`~":
                self._extend_run(piece)
                continue
            self._end_run()
            if piece == "\n":
                self._end_line()
            else:
                self._read_prose(piece)

    def is_inside(self) -> bool:
        """Return whether the next text is code. It must not continue the last run of backticks."""
        self._end_run()
        return bool(self._fence) or self._inline

    def is_inside_or_quoted(self) -> bool:
        """Return whether the next text is code, or in a block quote."""
        return self.is_inside() or self._in_quote

    def _extend_run(self, piece: str) -> None:
        if piece[0] != self._run:
            self._end_run()
            self._run = piece[0]
        self._run_length += len(piece)

    def _end_run(self) -> None:
        """Handle the end of a run of backticks or tildes, which may open or close code."""
        run, count = self._run, self._run_length
        if not run:
            return
        self._run, self._run_length = "", 0
        self._closing = False
        if self._fence:
            self._end_run_in_fence(run, count)
        elif self._inline and run == "`" and count == self._opening_length:
            self._inline = False
        elif count >= 3 and self._margin:
            self._open_fence(run, count)
        elif run == "`" and not self._inline:
            self._inline, self._opening_length = True, count
        self._blank = self._bare = self._margin = False

    def _open_fence(self, run: str, count: int) -> None:
        self._fence, self._opening_length, self._indent = run, count, self._width
        self._was_quoted = self._bare and not self._blank
        self._in_info = True
        self._inline = False  # a fence ends the paragraph

    def _end_run_in_fence(self, run: str, count: int) -> None:
        if run != self._fence:
            return
        if self._in_info:
            if run == "`":  # an info string has no backticks, so this was inline code
                self._fence = ""
                self._inline = count != self._opening_length
        elif count >= self._opening_length and self._width <= self._indent + _MAX_EXTRA_INDENT:
            self._closing = self._blank or (self._was_quoted and self._bare)

    def _read_prose(self, piece: str) -> None:
        has_text = not piece.isspace()
        self._closing = self._closing and not has_text
        if not self._margin:
            return
        self._in_quote = self._in_quote or _QUOTE.match(piece) is not None
        self._width += len(piece) + piece.count("\t") * (_TAB_WIDTH - 1)
        self._blank = self._blank and not has_text
        self._bare = self._bare and not piece.strip(" \t>")
        self._margin = _MARGIN.match(piece) is not None

    def _end_line(self) -> None:
        if self._closing:
            self._fence = ""
        if self._blank:
            self._inline = self._in_quote = False
        self._closing = self._in_info = False
        self._start_line()
