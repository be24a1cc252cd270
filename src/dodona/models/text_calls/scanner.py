"""Find calls in one channel of a streamed answer, content or thinking.

Text is passed on at once, except for a possible start of a marker. From a marker on, text is
buffered until it is a call or cannot be one. After a call everything is buffered until the answer
ends: a native call may still follow, and then the text must stay unchanged.
"""

from __future__ import annotations

import re

from dodona.models.text_calls.arguments import OfferedTools, ParsedCall
from dodona.models.text_calls.copies import CallBlock, CopiedCalls
from dodona.models.text_calls.cursor import Cursor, Mismatch
from dodona.models.text_calls.forms import PARSERS_BY_MARKER, CallParser, parse_whole_json
from dodona.models.text_calls.markdown_code import MarkdownCode

# A text longer than this after a marker is not treated as a call.
MAX_BUFFERED_CHARS = 256 * 1024
# Long text is processed in pieces to stay linear: each step copies the rest of the piece.
_PIECE_CHARS = 4096

_MARKER = re.compile("|".join(map(re.escape, PARSERS_BY_MARKER)))
_MAX_MARKER_CHARS = max(map(len, PARSERS_BY_MARKER))


class TextCallScanner:
    """Scans a text: `feed` returns text to show now, `close` the rest and the calls."""

    def __init__(self, offered: OfferedTools, *, copies: CopiedCalls, may_be_json: bool) -> None:
        self._offered = offered
        self._copies = copies
        self._code = MarkdownCode()
        self._at_start = may_be_json  # only whitespace so far: the answer may be JSON
        self._tail = ""  # a possible start of a marker
        self._candidate: _Candidate | None = None
        self._buffered: list[str | CallBlock] = []  # everything since the first call
        self._buffered_size = 0
        self._shown: list[str] = []
        self._abandoned = False

    @property
    def text(self) -> str:
        """The text without the calls: shown so far, and still buffered."""
        return "".join(self._shown) + self._buffered_text()

    def feed(self, text: str) -> str:
        """Process a piece of text, and return the text to show now."""
        is_buffering = self._candidate or self._buffered or self._tail or self._at_start
        if not is_buffering and "<" not in text and "[" not in text:
            self._emit(text)  # the common case
            return text
        before, position = len(self._shown), 0
        while position < len(text) and not self._abandoned:
            size = min(_PIECE_CHARS, self._remaining_capacity())
            if size:
                self._read(text[position : position + size])
                position += size
            else:
                self.abandon()
        if position < len(text):
            self._shown.append(text[position:])
        return "".join(self._shown[before:])

    def abandon(self) -> str:
        """Stop scanning, and return all buffered text unchanged."""
        self._abandoned = True
        parts = [part if isinstance(part, str) else part.source for part in self._buffered]
        if self._candidate is not None:
            parts.append(self._candidate.source())
        parts.append(self._tail)
        self._buffered, self._candidate, self._tail = [], None, ""
        text = "".join(parts)
        self._shown.append(text)
        return text

    def close(self) -> tuple[str, list[ParsedCall]]:
        """End the scan, and return the remaining text and the calls."""
        before = len(self._shown)
        while self._candidate is not None:
            self._candidate.cursor.ended = True
            self._read("")
        self._emit(self._tail)
        self._tail = ""
        calls = [
            call for part in self._buffered if isinstance(part, CallBlock) for call in part.calls
        ]
        return "".join(self._shown[before:]) + self._buffered_text(), calls

    def _buffered_text(self) -> str:
        text = "".join(part for part in self._buffered if isinstance(part, str))
        return text if text.strip() else ""  # ignore whitespace between calls

    def _remaining_capacity(self) -> int:
        pending = self._candidate.size if self._candidate else len(self._tail)
        return MAX_BUFFERED_CHARS - self._buffered_size - pending

    def _read(self, text: str) -> None:
        rest = text
        while True:
            rest = self._read_call(rest) if self._candidate else self._read_text(rest)
            if not rest:
                return

    def _read_call(self, text: str) -> str:
        """Continue a possible call, and return the text after it."""
        candidate = self._candidate
        assert candidate is not None
        try:
            calls = candidate.feed(text)
        except Mismatch:
            self._candidate = None
            self._emit(candidate.consumed_source())
            return candidate.cursor.rest
        if calls is None:
            return ""
        self._candidate = None
        block = CallBlock(candidate.consumed_source(), calls)
        if self._copies.contain(block):
            self._emit(block.source)
        else:
            self._buffer(block)
        return candidate.cursor.rest

    def _read_text(self, text: str) -> str:
        """Emit text up to the next marker, and return the text after the marker."""
        text = self._tail + text
        self._tail = ""
        if self._at_start and (text := self._read_start(text)) and self._candidate:
            return text
        marker = _MARKER.search(text)
        end = marker.start() if marker else _partial_marker_start(text)
        self._emit(text[:end])
        if end == len(text):
            return ""
        is_code = self._code.is_inside_or_quoted()
        if marker is None:
            if is_code:
                self._emit(text[end:])
            else:
                self._tail = text[end:]
            return ""
        if is_code:
            self._emit(marker[0])
        else:
            self._candidate = _Candidate(
                PARSERS_BY_MARKER[marker[0]], self._offered, opening=marker[0]
            )
        return text[marker.end() :]

    def _read_start(self, text: str) -> str:
        """Emit leading whitespace; an answer that starts with a bracket may be a call."""
        rest = text.lstrip()
        self._emit(text[: len(text) - len(rest)])
        if rest.startswith(("{", "[")) and _partial_marker_start(rest) and not _MARKER.match(rest):
            self._candidate = _Candidate(parse_whole_json, self._offered)
            self._at_start = False
        return rest

    def _emit(self, text: str) -> None:
        if not text:
            return
        self._code.feed(text)
        self._at_start = self._at_start and text.isspace()
        if self._buffered:
            self._buffer(text)
        else:
            self._shown.append(text)

    def _buffer(self, part: str | CallBlock) -> None:
        self._buffered.append(part)
        self._buffered_size += len(part if isinstance(part, str) else part.source)


def _partial_marker_start(text: str) -> int:
    """Return the start of a partial marker at the end of the text; else the text's length."""
    start = max(len(text) - _MAX_MARKER_CHARS + 1, 0)
    # A marker has one opening bracket, its first character, so only the last one can start it.
    bracket = max(text.rfind("<", start), text.rfind("[", start))
    if bracket >= 0 and any(marker.startswith(text[bracket:]) for marker in PARSERS_BY_MARKER):
        return bracket
    return len(text)


class _Candidate:
    """A possible call: the text from a marker on, and its parser."""

    def __init__(self, parser: CallParser, offered: OfferedTools, *, opening: str = "") -> None:
        self.cursor = Cursor()
        self._parser = parser(self.cursor, offered)
        self._parts = [opening]
        self.size = len(opening)

    def feed(self, text: str) -> list[ParsedCall] | None:
        """Parse more text, and return the calls once they are complete."""
        self._parts.append(text)
        self.size += len(text)
        self.cursor.rest += text
        try:
            next(self._parser)
        except StopIteration as done:
            return done.value
        return None

    def source(self) -> str:
        """Return all text received for this call."""
        return "".join(self._parts)

    def consumed_source(self) -> str:
        """Return the text that the parser has consumed."""
        source = self.source()
        return source[: len(source) - len(self.cursor.rest)]
