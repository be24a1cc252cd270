"""A folder of code on disk, and its index."""

from __future__ import annotations

import os
import time
from pathlib import Path

from dodona.core.domain.knowledge.code import IndexState
from dodona.tools.code.files.folders import CodeFolders
from dodona.tools.code.index.index import CodeIndex

OLD_NS = 1_700_000_000_000_000_000  # a file of that time cannot have been changed just now


class Repository:
    def __init__(self, folder: Path, *, max_bytes: int = 100_000) -> None:
        self.root = folder / "code"
        self.root.mkdir(exist_ok=True)
        self.file = folder / "indexes" / "code.db"
        self.max_bytes = max_bytes
        self.index = self.opened()

    def opened(self) -> CodeIndex:
        """Another index on the same file, as another process has."""
        return CodeIndex(CodeFolders([self.root]), self.file, max_bytes=self.max_bytes)

    def write(self, path: str, text: str | bytes, *, age: int = 0) -> Path:
        """A file that was written some time ago; the time is another for another text."""
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        data = text.encode() if isinstance(text, str) else text
        place.write_bytes(data)
        moment = OLD_NS - age * 1_000_000_000 + hash(data) % 1_000_000_000
        os.utime(place, ns=(moment, moment))
        return place

    def refresh(self) -> IndexState:
        return self.index.refresh()

    def found(self, query: str, limit: int = 8) -> list[str]:
        return [hit.path for hit in self.index.search(query, limit)]

    def best(self, query: str) -> str:
        return self.found(query, 1)[0]

    def counts(self) -> tuple[int, int, int, int]:
        """Taken in, unchanged, removed, skipped by a refresh."""
        state = self.refresh()
        return state.indexed, state.unchanged, state.removed, state.skipped


def until(holds: object, what: str, seconds: float = 40.0) -> None:
    """Wait for what another thread does."""
    deadline = time.monotonic() + seconds
    while not holds():  # type: ignore[operator]
        assert time.monotonic() < deadline, what
        time.sleep(0.02)
