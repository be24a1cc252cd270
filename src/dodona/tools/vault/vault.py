"""A vault: a folder of Markdown that an agent may search, read and write, and nothing around it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Final, TypeAlias, TypeVar

from dodona.core.errors import ToolFailed, ToolRetry
from dodona.core.near import did_you_mean
from dodona.core.threads import Threads
from dodona.core.tools import ToolContext
from dodona.tools.vault.files import Written, read_file, write_file
from dodona.tools.vault.finding import Hit
from dodona.tools.vault.index import Index, Listed
from dodona.tools.vault.notes import Note, parse_note
from dodona.tools.vault.paths import folder_parts, note_parts

MOST_COMPARED: Final = 2_000  # paths that a wrong one is compared with

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Reading:
    """A note with its text; `is_cut` when there is more of it."""

    note: Note
    text: str
    is_cut: bool


class Vault:
    """The notes below `root`; their index is at `index_path`, which must be no note's place.

    Everything that touches a disk happens in threads.
    """

    def __init__(self, root: Path, index_path: Path) -> None:
        self._root = root
        self._index = Index(root, index_path)

    async def read(self, path: str) -> Reading:
        return await _in_thread(lambda: self._read(path))

    async def write(self, path: str, content: str) -> tuple[Written, Note]:
        """Make the content the whole of a note, at once."""
        return await _in_thread(lambda: self._write(path, content))

    async def search(self, query: str, limit: int) -> list[Hit]:
        return await _in_thread(lambda: self._index.search(query, limit))

    async def list(self, folder: str) -> list[Listed]:
        """The notes of a folder and of those below it, in the order of paths."""
        return await _in_thread(lambda: self._list(folder))

    def _read(self, path: str) -> Reading:
        parts = note_parts(path)
        try:
            content = read_file(self._root, parts)
        except FileNotFoundError:
            raise self._missing("/".join(parts)) from None
        return Reading(parse_note("/".join(parts), content.text), content.text, content.is_cut)

    def _write(self, path: str, content: str) -> tuple[Written, Note]:
        parts = note_parts(path)
        written = write_file(self._root, parts, text=content)
        return written, parse_note("/".join(parts), content)

    def _list(self, folder: str) -> list[Listed]:
        parts = folder_parts(folder)
        notes = self._index.notes()
        inside = [note for note in notes if PurePosixPath(note.path).parts[: len(parts)] == parts]
        if parts and not inside:
            folders = {str(above) for n in notes for above in PurePosixPath(n.path).parents}
            name = "/".join(parts)
            raise ToolRetry(
                f"there is no folder '{name}' with notes.",
                hint=did_you_mean(name, sorted(folders - {"."})[:MOST_COMPARED]),
            )
        return inside

    def _missing(self, path: str) -> ToolRetry:
        """A note that is not there, with the one that may be meant."""
        paths = [note.path for note in self._index.notes()]
        name = PurePosixPath(path).name.casefold()
        same = [known for known in paths if PurePosixPath(known).name.casefold() == name]
        near = f"Did you mean '{same[0]}'?" if same else did_you_mean(path, paths[:MOST_COMPARED])
        return ToolRetry(
            f"there is no note '{path}'.", hint=near or "Search for it, or list the folder."
        )


VaultOf: TypeAlias = Callable[[ToolContext], Awaitable[Vault]]  # the one of a call's project


@cache
def _threads() -> Threads:
    """For all vaults together; a disk that hangs blocks none but these."""
    return Threads(8, "dodona-vault", whom="the vault")


async def _in_thread(work: Callable[[], T]) -> T:
    """What the work returns; an error of the disk is told without the paths of this machine."""
    try:
        return await _threads().submit(work)
    except OSError as error:
        raise ToolFailed(f"the vault cannot be used: {error.strerror or 'disk error'}.") from error
