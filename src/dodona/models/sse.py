"""Server-sent events: bytes in, the data of whole events out.

Names and ids of events are not kept: both wires say in the data itself what it is.
"""

from __future__ import annotations

MAX_EVENT_BYTES = 8 * 1024 * 1024
_BOM = b"\xef\xbb\xbf"


class EventTooLong(Exception):
    """An event passed the limit before it ended."""


class SseParser:
    """Takes bytes split anywhere; lines may end in LF, CRLF or CR."""

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
        self._tail: list[bytes] = []  # a line that has not ended, in pieces
        self._tail_size = 0
        self._data: list[bytes] = []  # lines of an event that has not ended
        self._data_size = 0
        self._after_cr = False  # an LF that comes next belongs to the CR before it
        self._has_started = False

    def feed(self, chunk: bytes) -> list[bytes]:
        """The data of each event that ends in this chunk."""
        if self._after_cr and chunk:
            self._after_cr = False
            chunk = chunk.removeprefix(b"\n")
        end = max(chunk.rfind(b"\n"), chunk.rfind(b"\r")) + 1
        events: list[bytes] = []
        if end:
            self._after_cr = chunk.endswith(b"\r")
            # Joined only now: a long line that trickles in is not copied with every chunk.
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
        """The data of an event that the stream ended without the empty line behind it."""
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
        # An empty line of data counts too: a million of them are not nothing.
        self._data_size += sum(len(line) + 1 for line in data[counted:])
        return events
