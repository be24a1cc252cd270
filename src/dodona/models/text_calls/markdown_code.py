"""Where Markdown is code, found while the text still arrives.

Fences of ``` and ~~~ (also unclosed ones) and inline code. In doubt it is code: a fence closes
only as CommonMark says, and an inline backtick that nobody closes counts to the end of its
paragraph. Code that is only indented is not seen.
"""

from __future__ import annotations

import re

_PIECE = re.compile(r"`+|~+|\n|[^`~\n]+")
# What may stand before a fence: indentation, quote marks, list marks.
_MARGIN = re.compile(r"[\s>*+\-0-9.)]*\Z")
_TAB_WIDTH = 4
_MAX_EXTRA_INDENT = 3  # how much further than its opening a closing fence may be indented


class MarkdownCode:
    """Follows a text; `inside` says whether what comes next is code."""

    def __init__(self) -> None:
        self._fence: str = ""  # the character of the open fence
        self._inline: bool = False
        self._opening_length: int = 0  # of the run that opened the code
        self._indent = 0  # of the open fence
        self._was_quoted = False  # the open fence stands in a quotation
        self._in_info = False  # on the line that opened the fence
        self._closing = False  # a closing fence was read; only blanks may follow it
        self._run = ""  # the character of a run that may go on
        self._run_length = 0
        self._start_line()

    def _start_line(self) -> None:
        self._blank = True  # nothing but blanks so far
        self._bare = True  # nothing but blanks and quote marks
        self._margin = True  # nothing that forbids a fence
        self._width = 0

    def feed(self, text: str) -> None:
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
        """Is what comes next code? It must not go on with the same run of backticks."""
        self._end_run()
        return bool(self._fence) or self._inline

    def _extend_run(self, piece: str) -> None:
        if piece[0] != self._run:
            self._end_run()
            self._run = piece[0]
        self._run_length += len(piece)

    def _end_run(self) -> None:
        """The run has ended: what does it open or close?"""
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
            if run == "`":  # no info string has backticks: this was inline code
                self._fence = ""
                self._inline = count != self._opening_length
        elif count >= self._opening_length and self._width <= self._indent + _MAX_EXTRA_INDENT:
            self._closing = self._blank or (self._was_quoted and self._bare)

    def _read_prose(self, piece: str) -> None:
        filled = not piece.isspace()
        self._closing = self._closing and not filled
        if not self._margin:
            return
        self._width += len(piece) + piece.count("\t") * (_TAB_WIDTH - 1)
        self._blank = self._blank and not filled
        self._bare = self._bare and not piece.strip(" \t>")
        self._margin = _MARGIN.match(piece) is not None

    def _end_line(self) -> None:
        if self._closing:
            self._fence = ""
        if self._blank:
            self._inline = False
        self._closing = self._in_info = False
        self._start_line()
