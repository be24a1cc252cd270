r"""Characters that a careless gateway cut in two, each half in an event of its own.

JSON writes an emoji as a pair of escapes, `\ud83c\udf33`. A server that streams by UTF-16 units
sends half of it, which is no text. The first half waits here for the second.
"""

from __future__ import annotations

import re

# A backslash that is escaped itself begins no escape.
_ESCAPE = re.compile(rb"\\\\|\\u[dD](?:([89abAB])|[c-fC-F])[0-9a-fA-F]{2}")
_REPLACEMENT = b"\\ufffd"


class SurrogateJoiner:
    """Mends the events of one answer; only those that could not be read."""

    def __init__(self) -> None:
        self._pending_half = b""

    def repair(self, data: bytes) -> bytes:
        """The event with whole characters: halves are joined, kept for later, or replaced."""
        pieces: list[bytes] = []
        place, open_ = 0, False  # is the last piece a first half?
        for found in _ESCAPE.finditer(data):
            escape = found[0]
            if escape == rb"\\":
                continue
            pieces.append(data[place : found.start()])
            place = found.end()
            is_first = found[1] is not None
            if not is_first and open_ and not pieces[-1]:
                pieces.append(escape)  # a pair
                open_ = False
                continue
            if open_:
                pieces[-2] = _REPLACEMENT
            pieces.append(escape if is_first else self._join(escape))
            open_ = is_first
        if open_:
            self._pending_half = pieces.pop()
        pieces.append(data[place:])
        return b"".join(pieces)

    def _join(self, second: bytes) -> bytes:
        first, self._pending_half = self._pending_half, b""
        return first + second if first else _REPLACEMENT
