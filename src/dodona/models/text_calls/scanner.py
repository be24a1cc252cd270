"""Finds the calls in one channel of an answer, content or thinking, while it streams.

Text flows on at once, but for what may be the beginning of a marker. From a marker on it is held
until it is a call or cannot be one any more; after a call all is held until the answer ends,
because a native call may still come, and then the text must stand as it was written.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from dodona.models.text_calls.arguments import Called, Offered
from dodona.models.text_calls.cursor import Cursor, Mismatch
from dodona.models.text_calls.forms import FORMS, Form, whole_json
from dodona.models.text_calls.markdown_code import MarkdownCode

# In characters. Who writes more than this between a marker and the end is not calling a tool.
MAX_HELD = 256 * 1024
# Cutting a long text first keeps the work linear: what is left is copied at every step.
_PIECE = 4096

_MARKER = re.compile("|".join(map(re.escape, FORMS)))
_LONGEST = max(map(len, FORMS))


@dataclass(frozen=True, slots=True)
class Found:
    """Calls, and the text that they were."""

    source: str
    calls: list[Called]


class Scanner:
    """`feed` gives what may be shown now; `close` what is left, and the calls."""

    def __init__(self, offered: Offered, *, may_be_json: bool) -> None:
        self._offered = offered
        self._code = MarkdownCode()
        self._at_start = may_be_json  # only blanks so far: JSON could be the whole answer
        self._tail = ""  # perhaps the beginning of a marker
        self._candidate: _Candidate | None = None
        self._kept: list[str | Found] = []  # all since the first call
        self._kept_size = 0
        self._shown: list[str] = []
        self._resigned = False

    @property
    def text(self) -> str:
        """What was shown, and what is kept without the calls."""
        return "".join(self._shown) + self._kept_text()

    def feed(self, text: str) -> str:
        """The text that may be shown now."""
        is_holding = self._candidate or self._kept or self._tail or self._at_start
        if not is_holding and "<" not in text and "[" not in text:
            self._emit(text)  # nearly always
            return text
        before, at = len(self._shown), 0
        while at < len(text) and not self._resigned:
            size = min(_PIECE, self._room())
            if size:
                self._read(text[at : at + size])
                at += size
            else:
                self.resign()
        if at < len(text):
            self._shown.append(text[at:])
        return "".join(self._shown[before:])

    def resign(self) -> str:
        """Show all that is held, as it was written, and look for nothing any more."""
        self._resigned = True
        held = [part if isinstance(part, str) else part.source for part in self._kept]
        if self._candidate is not None:
            held.append(self._candidate.source())
        held.append(self._tail)
        self._kept, self._candidate, self._tail = [], None, ""
        text = "".join(held)
        self._shown.append(text)
        return text

    def close(self) -> tuple[str, list[Called]]:
        """The answer has ended: the text that was still held, and the calls."""
        before = len(self._shown)
        while self._candidate is not None:
            self._candidate.cursor.ended = True
            self._read("")
        self._emit(self._tail)
        self._tail = ""
        calls = [call for part in self._kept if isinstance(part, Found) for call in part.calls]
        return "".join(self._shown[before:]) + self._kept_text(), calls

    def _kept_text(self) -> str:
        text = "".join(part for part in self._kept if isinstance(part, str))
        return text if text.strip() else ""  # blanks between calls are no text

    def _room(self) -> int:
        held = self._kept_size + (self._candidate.size if self._candidate else len(self._tail))
        return MAX_HELD - held

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
            self._emit(candidate.source_read())
            return candidate.cursor.rest
        if calls is None:
            return ""
        self._candidate = None
        self._keep(Found(candidate.source_read(), calls))
        return candidate.cursor.rest

    def _read_text(self, text: str) -> str:
        """Show text up to the next marker; what follows the marker is given back."""
        text = self._tail + text
        self._tail = ""
        if self._at_start and (text := self._read_start(text)) and self._candidate:
            return text
        marker = _MARKER.search(text)
        end = marker.start() if marker else _unfinished_marker(text)
        self._emit(text[:end])
        if end == len(text):
            return ""
        is_code = self._code.inside()
        if marker is None:
            if is_code:
                self._emit(text[end:])
            else:
                self._tail = text[end:]
            return ""
        if is_code:
            self._emit(marker[0])
        else:
            self._candidate = _Candidate(FORMS[marker[0]], self._offered, opening=marker[0])
        return text[marker.end() :]

    def _read_start(self, text: str) -> str:
        """Blanks before an answer are shown; an answer that begins with a bracket may be a call."""
        rest = text.lstrip()
        self._emit(text[: len(text) - len(rest)])
        if rest.startswith(("{", "[")) and _unfinished_marker(rest) and not _MARKER.match(rest):
            self._candidate = _Candidate(whole_json, self._offered)
            self._at_start = False
        return rest

    def _emit(self, text: str) -> None:
        if not text:
            return
        self._code.feed(text)
        self._at_start = self._at_start and text.isspace()
        if self._kept:
            self._keep(text)
        else:
            self._shown.append(text)

    def _keep(self, part: str | Found) -> None:
        self._kept.append(part)
        self._kept_size += len(part if isinstance(part, str) else part.source)


def _unfinished_marker(text: str) -> int:
    """Where the text ends in the beginning of a marker; its length if it does not."""
    start = max(len(text) - _LONGEST + 1, 0)
    # A marker has its bracket in front and no other: only the last one can begin it.
    at = max(text.rfind("<", start), text.rfind("[", start))
    if at >= 0 and any(marker.startswith(text[at:]) for marker in FORMS):
        return at
    return len(text)


class _Candidate:
    """Text from a marker on, which is a call or is not."""

    def __init__(self, form: Form, offered: Offered, *, opening: str = "") -> None:
        self.cursor = Cursor()
        self._parsing = form(self.cursor, offered)
        self._parts = [opening]
        self.size = len(opening)

    def feed(self, text: str) -> list[Called] | None:
        """The calls, once they are complete."""
        self._parts.append(text)
        self.size += len(text)
        self.cursor.rest += text
        try:
            next(self._parsing)
        except StopIteration as done:
            return done.value
        return None

    def source(self) -> str:
        return "".join(self._parts)

    def source_read(self) -> str:
        """The source without what the parser has not read."""
        source = self.source()
        return source[: len(source) - len(self.cursor.rest)]
