r"""Join surrogate pairs that a server split across two events.

JSON may encode an emoji as a pair of escapes, `\ud83c\udf33`. A server that streams UTF-16 units
sends one half per event, and a half is not valid text. The first half is buffered for the second.
"""

from __future__ import annotations

import re

# `\\` is an escaped backslash, which does not start a `\u` escape.
_ESCAPE = re.compile(rb"\\\\|\\u[dD](?:([89abAB])|[c-fC-F])[0-9a-fA-F]{2}")
_REPLACEMENT = b"\\ufffd"


class SurrogateJoiner:
    """Repairs the events of one answer that could not be decoded."""

    def __init__(self) -> None:
        self._pending_half = b""

    def repair(self, data: bytes) -> bytes:
        """Return the event with valid text: halves are joined, buffered or replaced."""
        pieces: list[bytes] = []
        position, is_open = 0, False  # is_open: the last piece is a first half
        for match in _ESCAPE.finditer(data):
            escape = match[0]
            if escape == rb"\\":
                continue
            pieces.append(data[position : match.start()])
            position = match.end()
            is_first = match[1] is not None
            if not is_first and is_open and not pieces[-1]:
                pieces.append(escape)  # completes a pair
                is_open = False
                continue
            if is_open:
                pieces[-2] = _REPLACEMENT
            pieces.append(escape if is_first else self._join(escape))
            is_open = is_first
        if is_open:
            self._pending_half = pieces.pop()
        pieces.append(data[position:])
        return b"".join(pieces)

    def _join(self, second: bytes) -> bytes:
        first, self._pending_half = self._pending_half, b""
        return first + second if first else _REPLACEMENT
