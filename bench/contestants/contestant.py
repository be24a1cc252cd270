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
        """Prepare. The notes are in `folder`/vault; the database is created in `folder`."""
        ...

    async def open(self, sessions: Sequence[str]) -> None:
        """Prepare sessions for concurrent questions."""

    async def ask(self, session: str, model: str, hear: Hear) -> None:
        """Make one run and stream it: `hear` receives each piece of text."""
        ...

    async def fill(self, session: str, messages: int) -> None:
        """Fill a session with a history of so many messages."""
        ...

    async def stop(self) -> None: ...


def filler(number: int) -> str:
    return f"{FILLER} {number}"


def read_note(vault: Path, path: str) -> str:
    """The complete tool of the peers."""
    return (vault / path).read_text(encoding="utf-8")
