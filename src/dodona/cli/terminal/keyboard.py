"""Lines that a person types, for code that must not wait for them."""

from __future__ import annotations

import asyncio
import os
import threading


class Keyboard:
    """Reads standard input in a thread that nothing waits for: a run may end while it blocks.

    It reads the descriptor, not `sys.stdin`, whose lock a blocked thread would hold at exit.
    """

    def __init__(self) -> None:
        self._lines: asyncio.Queue[str | None] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        threading.Thread(target=self._read_stdin, name="keyboard", daemon=True).start()

    async def read_line(self) -> str | None:
        """The next line without its end; None when there are no more."""
        line = await self._lines.get()
        if line is None:
            self._lines.put_nowait(None)
        return line

    def _read_stdin(self) -> None:
        pending = b""
        while chunk := os.read(0, 4096):
            *lines, pending = (pending + chunk).split(b"\n")
            for line in lines:
                self._put(line.decode(errors="replace"))
        if pending:
            self._put(pending.decode(errors="replace"))
        self._put(None)

    def _put(self, line: str | None) -> None:
        try:
            self._loop.call_soon_threadsafe(self._lines.put_nowait, line)
        except RuntimeError:
            return  # the loop is closed: nobody reads any more
