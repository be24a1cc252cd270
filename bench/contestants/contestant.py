"""What each contestant does: ask in a session, stream the answer, keep what was said."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

QUESTION = "What do the notes say?"
SYSTEM = "You answer questions from the notes. Use the tool vault_read to read a note."
FILLER = "The oak at Dodona spoke through the rustling of its leaves."

Hear = Callable[[str], None]


class Contender(Protocol):
    """Everything that was said is in a SQLite file when `ask` returns."""

    async def start(self, base_url: str, folder: Path) -> None:
        """Be ready. Notes are in `folder`/vault; the file is made in `folder`."""
        ...

    async def open(self, sessions: Sequence[str]) -> None:
        """Make sessions ready that are asked in at the same time."""

    async def ask(self, session: str, model: str, hear: Hear) -> None:
        """One run, streamed: `hear` is given each piece of the answer's text."""
        ...

    async def fill(self, session: str, messages: int) -> None:
        """Give a session a past of so many messages."""
        ...

    async def stop(self) -> None: ...


def filler(number: int) -> str:
    return f"{FILLER} {number}"


def read_note(vault: Path, path: str) -> str:
    """The whole work of the peers' tool."""
    return (vault / path).read_text(encoding="utf-8")
