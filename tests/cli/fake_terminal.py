"""A terminal at which a command runs, and what a person sees and types there."""

from __future__ import annotations

import os
import pty
import select
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cli.running import PATIENCE, given
from tests.fork_server import ForkedProcess


class Terminal:
    def __init__(self, descriptor: int, process: ForkedProcess) -> None:
        self._descriptor = descriptor
        self._process = process
        self._seen = ""

    def type(self, text: str) -> None:
        os.write(self._descriptor, text.encode())

    def until(self, words: str) -> str:
        """Read until these words come, and forget all before their end; what came before them."""
        deadline = time.monotonic() + PATIENCE
        while words not in self._seen:
            assert time.monotonic() < deadline, f"{words!r} never came: {self._seen!r}"
            if not select.select([self._descriptor], [], [], 0.5)[0]:
                continue
            try:
                data = os.read(self._descriptor, 4096)
            except OSError:  # EIO: the other side is closed
                data = b""
            assert data, f"{words!r} never came: {self._seen!r}"
            self._seen += data.decode(errors="replace")
        before, _, self._seen = self._seen.partition(words)
        return before

    def ended(self) -> int:
        """The exit code of the command, once it has one."""
        return self._process.wait(timeout=PATIENCE)


@contextmanager
def at_terminal(folder: Path, *words: str) -> Iterator[Terminal]:
    mine, its = pty.openpty()
    with ForkedProcess(
        *words,
        stdin=its,
        stdout=its,
        stderr=its,
        cwd=folder,
        env={**given(folder, {}), "TERM": "dumb"},
        terminal=True,
    ) as process:
        os.close(its)
        try:
            yield Terminal(mine, process)
        finally:
            process.kill()
            os.close(mine)
