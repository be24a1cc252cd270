"""Finds the calls in one channel of an answer, content or thinking, while it streams.

Text flows on at once, but for what may be the beginning of a marker. From a marker on it is held
until it is a call or cannot be one any more; after a call all is held until the answer ends,
because a native call may still come, and then the text must stand as it was written.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from dodona.models.text_calls.arguments import OfferedTools, ParsedCall
from dodona.models.text_calls.cursor import Cursor, Mismatch
from dodona.models.text_calls.forms import PARSERS_BY_MARKER, CallParser, parse_whole_json
from dodona.models.text_calls.markdown_code import MarkdownCode

# In characters. Who writes more than this between a marker and the end is not calling a tool.
MAX_BUFFERED_CHARS = 256 * 1024
# Cutting a long text first keeps the work linear: what is left is copied at every step.
_PIECE_CHARS = 4096

_MARKER = re.compile("|".join(map(re.escape, PARSERS_BY_MARKER)))
_MAX_MARKER_CHARS = max(map(len, PARSERS_BY_MARKER))


@dataclass(frozen=True, slots=True)
class CallBlock:
    """Calls, and the text that they were."""

    source: str
    calls: list[ParsedCall]


class TextCallScanner:
    """`feed` gives what may be shown now; `close` what is left, and the calls."""

    def __init__(self, offered: OfferedTools, *, may_be_json: bool) -> None:
        self._offered = offered
        self._code = MarkdownCode()
        self._at_start = may_be_json  # only blanks so far: JSON could be the whole answer
        self._tail = ""  # perhaps the beginning of a marker
        self._candidate: _Candidate | None = None
        self._buffered: list[str | CallBlock] = []  # all since the first call
        self._buffered_size = 0
        self._shown: list[str] = []
        self._abandoned = False

    @property
    def text(self) -> str:
        """What was shown, and what is kept without the calls."""
        return "".join(self._shown) + self._buffered_text()

    def feed(self, text: str) -> str:
        """The text that may be shown now."""
        is_holding = self._candidate or self._buffered or self._tail or self._at_start
        if not is_holding and "<" not in text and "[" not in text:
            self._emit(text)  # nearly always
            return text
        before, at = len(self._shown), 0
        while at < len(text) and not self._abandoned:
            size = min(_PIECE_CHARS, self._remaining_capacity())
            if size:
                self._read(text[at : at + size])
                at += size
            else:
                self.abandon()
        if at < len(text):
            self._shown.append(text[at:])
        return "".join(self._shown[before:])

    def abandon(self) -> str:
        """Show all that is held, as it was written, and look for nothing any more."""
        self._abandoned = True
        held = [part if isinstance(part, str) else part.source for part in self._buffered]
        if self._candidate is not None:
            held.append(self._candidate.source())
        held.append(self._tail)
        self._buffered, self._candidate, self._tail = [], None, ""
        text = "".join(held)
        self._shown.append(text)
        return text

    def close(self) -> tuple[str, list[ParsedCall]]:
        """The answer has ended: the text that was still held, and the calls."""
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
        return text if text.strip() else ""  # blanks between calls are no text

    def _remaining_capacity(self) -> int:
        held = self._buffered_size + (self._candidate.size if self._candidate else len(self._tail))
        return MAX_BUFFERED_CHARS - held

    def _read(self, text: str) -> None:
        rest = text
        while True:
            rest = self._read_call(rest) if self._candidate else self._read_text(rest)
            if not rest:
                return

    def _read_call(self, text: str) -> str:
        """Go on with a call that may be one; what is not part of it is given back."""
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
        self._buffer(CallBlock(candidate.consumed_source(), calls))
        return candidate.cursor.rest

    def _read_text(self, text: str) -> str:
        """Show text up to the next marker; what follows the marker is given back."""
        text = self._tail + text
        self._tail = ""
        if self._at_start and (text := self._read_start(text)) and self._candidate:
            return text
        marker = _MARKER.search(text)
        end = marker.start() if marker else _partial_marker_start(text)
        self._emit(text[:end])
        if end == len(text):
            return ""
        is_code = self._code.is_inside()
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
        """Blanks before an answer are shown; an answer that begins with a bracket may be a call."""
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
    """Where the text ends in the beginning of a marker; its length if it does not."""
    start = max(len(text) - _MAX_MARKER_CHARS + 1, 0)
    # A marker has its bracket in front and no other: only the last one can begin it.
    at = max(text.rfind("<", start), text.rfind("[", start))
    if at >= 0 and any(marker.startswith(text[at:]) for marker in PARSERS_BY_MARKER):
        return at
    return len(text)


class _Candidate:
    """Text from a marker on, which is a call or is not."""

    def __init__(self, parser: CallParser, offered: OfferedTools, *, opening: str = "") -> None:
        self.cursor = Cursor()
        self._parser = parser(self.cursor, offered)
        self._parts = [opening]
        self.size = len(opening)

    def feed(self, text: str) -> list[ParsedCall] | None:
        """The calls, once they are complete."""
        self._parts.append(text)
        self.size += len(text)
        self.cursor.rest += text
        try:
            next(self._parser)
        except StopIteration as done:
            return done.value
        return None

    def source(self) -> str:
        return "".join(self._parts)

    def consumed_source(self) -> str:
        """The source without what the parser has not read."""
        source = self.source()
        return source[: len(source) - len(self.cursor.rest)]
