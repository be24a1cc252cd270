"""The interface of a contestant: ask in a session, stream the answer, store the messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

QUESTION = "What do the notes say?"
SYSTEM = "You answer questions from the notes. Use the tool vault_read to read a note."
FILLER = "The oak at Dodona spoke through the rustling of its leaves."

Hear = Callable[[str], None]


class Contender(Protocol):
    """When `ask` returns, all messages are in a SQLite file."""

    async def start(self, base_url: str, folder: Path) -> None:
        """Prepare. Notes are in `folder`/vault; the SQLite file is created in `folder`."""
        ...

    async def open(self, sessions: Sequence[str]) -> None:
        """Prepare sessions that are used concurrently."""

    async def ask(self, session: str, model: str, hear: Hear) -> None:
        """One run, streamed: `hear` receives each piece of the answer's text."""
        ...

    async def fill(self, session: str, messages: int) -> None:
        """Give a session a history of this many messages."""
        ...

    async def stop(self) -> None: ...


def filler(number: int) -> str:
    return f"{FILLER} {number}"


def read_note(vault: Path, path: str) -> str:
    """The tool of the peers."""
    return (vault / path).read_text(encoding="utf-8")
