"""Input from the terminal: confirmations, and lines that are read asynchronously."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from typing import Final

from dodona.cli.terminal.output import print_note
from dodona.core.errors import BadRequest, Cancelled

REVIEW_HINT: Final = "Look at it, then confirm with --yes."


def require_terminal(message: str, *, hint: str) -> None:
    """Raise BadRequest with this message if standard input is not a terminal."""
    if not sys.stdin.isatty():
        raise BadRequest(message, hint=hint)


def confirm(question: str, otherwise: str) -> None:
    """Ask a question at the terminal. Any answer but yes raises Cancelled with `otherwise`."""
    print_note(f"{question} [y/N] ", end="")
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise Cancelled(otherwise)


class Keyboard:
    """Reads standard input in a daemon thread, so that a run can end while the thread blocks.

    It reads the file descriptor, not `sys.stdin`: a blocked thread would hold its lock at exit.
    """

    def __init__(self) -> None:
        self._lines: asyncio.Queue[str | None] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        threading.Thread(target=self._read_stdin, name="keyboard", daemon=True).start()

    async def read_line(self) -> str | None:
        """Return the next line without its newline; None at the end of input."""
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
            return  # the loop is closed
