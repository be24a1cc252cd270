"""A parser for server-sent events: bytes in, the data of complete events out.

Event names and ids are ignored: both APIs repeat the type in the data.
"""

from __future__ import annotations

MAX_EVENT_BYTES = 8 * 1024 * 1024
_BOM = b"\xef\xbb\xbf"


class EventTooLong(Exception):
    """An event is longer than the limit."""


class SseParser:
    """Parses bytes that may be split anywhere; lines end in LF, CRLF or CR."""

    __slots__ = (
        "_after_cr",
        "_data",
        "_data_size",
        "_has_started",
        "_max_bytes",
        "_tail",
        "_tail_size",
    )

    def __init__(self, max_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max_bytes = max_bytes
        self._tail: list[bytes] = []  # pieces of an incomplete line
        self._tail_size = 0
        self._data: list[bytes] = []  # lines of an incomplete event
        self._data_size = 0
        self._after_cr = False  # an LF next belongs to the CR before it
        self._has_started = False

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the data of each event that ends in this chunk."""
        if self._after_cr and chunk:
            self._after_cr = False
            chunk = chunk.removeprefix(b"\n")
        end = max(chunk.rfind(b"\n"), chunk.rfind(b"\r")) + 1
        events: list[bytes] = []
        if end:
            self._after_cr = chunk.endswith(b"\r")
            # Joined only here, so that a long line is not copied with every chunk.
            events = self._read_lines(b"".join((*self._tail, chunk[:end])).splitlines())
            self._tail = []
            self._tail_size = 0
            chunk = chunk[end:]
        if chunk:
            self._tail.append(chunk)
            self._tail_size += len(chunk)
        if self._data_size + self._tail_size > self._max_bytes:
            raise EventTooLong
        return events

    def flush(self) -> list[bytes]:
        """Return the data of a last event without the terminating empty line."""
        return self._read_lines([b"".join(self._tail), b""])

    def _read_lines(self, lines: list[bytes]) -> list[bytes]:
        if not self._has_started:
            self._has_started = True
            lines[0] = lines[0].removeprefix(_BOM)
        events: list[bytes] = []
        data = self._data
        counted = len(data)
        for line in lines:
            if not line:
                if data:
                    events.append(data[0] if len(data) == 1 else b"\n".join(data))
                    data = []
            elif line.startswith(b"data:"):
                data.append(line[6:] if line.startswith(b"data: ") else line[5:])
            elif line == b"data":
                data.append(b"")
        if events:
            self._data = data
            self._data_size = counted = 0
        # Empty data lines count too: a million of them use memory.
        self._data_size += sum(len(line) + 1 for line in data[counted:])
        return events
