"""A vault: a folder of Markdown that an agent may search, read and write, and nothing around it."""

from __future__ import annotations

import asyncio
import builtins
import logging
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path, PurePath, PurePosixPath
from typing import Final, TypeVar

from dodona.concurrency.workers import WorkerThreads
from dodona.core.domain.knowledge.notes import (
    Backlink,
    NoteHit,
    NoteListed,
    NoteMoved,
    NoteText,
    NoteWritten,
)
from dodona.core.errors import DodonaError, NotFound, ToolFailed, ToolRetry, did_you_mean
from dodona.tools.following import Follower
from dodona.tools.rebuildable_db import WAIT_SECONDS, file_lock
from dodona.tools.vault.index import folder_index
from dodona.tools.vault.index.index import Index
from dodona.tools.vault.moves.move_log import Moves
from dodona.tools.vault.moves.move_service import Mover
from dodona.tools.vault.notes.files import Content, read_file, spelled, version_of, write_file
from dodona.tools.vault.notes.links import Names
from dodona.tools.vault.notes.notes import parse_note
from dodona.tools.vault.notes.paths import folder_parts, note_parts

MOST_COMPARED: Final = 2_000  # paths that a wrong one is compared with
MOST_INDEXED: Final = 2_000  # notes that an index may list

_log = logging.getLogger(__name__)
T = TypeVar("T")


class Vault:
    """The `Notes` below `root`; their index is at `index_path`, which must be no note's place.

    Everything that touches a disk happens in threads. Writers take turns, also those of other
    processes; each of them first finishes a move that a crash has cut.
    """

    def __init__(self, root: Path, index_path: Path) -> None:
        self.root = root
        self.index = Index(root, index_path, is_followed=lambda: self.is_followed)
        self._follower: Follower | None = None
        self._lock = index_path.with_suffix(".lock")
        self._moves = Moves(index_path.with_suffix(".moves"))
        self._mover = Mover(root, self.index, self._moves)
        self._settling = threading.Lock()
        self._settled: tuple[int, int] | None = None
        # Who waits for another writer waits here, and not in a thread that readers need.
        self._writing = asyncio.Lock()

    @property
    def is_followed(self) -> bool:
        return self._follower is not None and self._follower.is_up

    def follow(self) -> None:
        """Take changes in as they are made, until it is closed."""
        if self._follower is None:
            self._follower = Follower([self.root], self._follow, matters=_matters, what="vault")

    async def close(self) -> None:
        """Follow no more, and leave the index when nobody uses it any more."""
        if self._follower is not None:
            await _in_thread(self._follower.close)
            self._follower = None
        await _in_thread(self.index.close)

    async def prepared(self, progress: Callable[[int, int], None]) -> None:
        """Bring the index up to date; `progress` is told in a thread how many notes are done."""
        await self._used(lambda: self.index.refresh(progress))

    async def read(self, path: str) -> NoteText:
        return await self._used(lambda: self._read(path))

    async def write(self, path: str, content: str, *, version: str | None = None) -> NoteWritten:
        """Make the content the whole of a note, at once, if the note has this version.

        Without one there must be no note. Conflict when it is otherwise, unless the note says
        already what it should. An editor that does not take our lock can come between our last
        look and the write, which are microseconds apart.
        """
        return await self._changed(lambda: self._write(path, content, version or ""))

    async def search(self, query: str, limit: int) -> list[NoteHit]:
        return await self._used(lambda: self.index.search(query, limit))

    async def relevant(self, question: str, limit: int) -> list[NoteListed]:
        """The notes that fit a question best, then those that were changed last."""
        return await self._used(lambda: self.index.relevant(question, limit))

    async def list(self, folder: str = "") -> builtins.list[NoteListed]:
        """The notes of a folder and of those below it, in the order of paths."""
        return await self._used(lambda: self._list(folder))

    async def move(self, path: str, to: str) -> NoteMoved:
        """Move a note, and change every link to it. Made again, it tells what was done."""
        return await self._changed(lambda: self._move(path, to), is_moving=True)

    async def moves(self, limit: int = 20) -> builtins.list[NoteMoved]:
        """The latest moves that can be undone, the newest first."""
        return await self._used(lambda: [move.told() for move in self._moves.list(limit)])

    async def undo(self, move: int | None = None) -> NoteMoved:
        """Take a move back, by default the latest that was not made by this; it is a move too."""
        return await self._changed(lambda: self._mover.undo(move).told(), is_moving=True)

    async def create_index(self, folder: str, *, title: str = "") -> NoteWritten:
        """Write `index.md` into a folder; the title is for one that is not there yet."""
        return await self._changed(lambda: self._create_index(folder, title))

    async def backlinks(self, path: str) -> builtins.list[Backlink]:
        return await self._used(lambda: self._backlinks(path))

    async def tags(self) -> builtins.list[tuple[str, int]]:
        return await self._used(self.index.tags)

    async def versions(self, paths: tuple[str, ...]) -> dict[str, str]:
        """The versions that notes have now; those that are gone are missing."""
        return await self._used(lambda: self._versions(paths))

    def _follow(self, changed: Sequence[PurePath] | None, stop: threading.Event) -> None:
        if changed is None:
            self.index.refresh(lambda done, total: _unless(stop))
        else:
            self.index.take(path.relative_to(self.root).as_posix() for path in changed)

    def _parts(self, path: str) -> tuple[str, ...]:
        return spelled(self.root, note_parts(path))

    def _content(self, path: str) -> tuple[str, Content]:
        parts = self._parts(path)
        try:
            return "/".join(parts), read_file(self.root, parts)
        except FileNotFoundError:
            raise self._missing("/".join(parts)) from None

    def _read(self, path: str) -> NoteText:
        found, content = self._content(path)
        note = parse_note(found, content.text)
        return NoteText(
            path=found,
            title=note.title,
            tags=note.tags,
            text=content.text,
            lines=note.lines,
            version=content.version,
            is_cut=content.is_cut,
        )

    def _write(self, path: str, content: str, version: str) -> NoteWritten:
        parts = self._parts(path)
        outcome = write_file(self.root, parts, text=content, version=version)
        note = parse_note("/".join(parts), content)
        try:
            self.index.take([note.path])
        except (OSError, DodonaError) as error:
            # The note is written, whether or not the index can be.
            _log.warning("the index does not know of a note yet: %s", error)
        return NoteWritten(note.path, note.title, note.lines, version_of(content.encode()), outcome)

    def _list(self, folder: str) -> builtins.list[NoteListed]:
        parts = spelled(self.root, folder_parts(folder))
        notes = self.index.notes()
        inside = [note for note in notes if PurePosixPath(note.path).parts[: len(parts)] == parts]
        if parts and not inside:
            folders = {str(above) for n in notes for above in PurePosixPath(n.path).parents}
            name = "/".join(parts)
            raise NotFound(
                f"there is no folder '{name}' with notes.",
                hint=did_you_mean(name, sorted(folders - {"."})[:MOST_COMPARED]),
            )
        return inside

    def _move(self, path: str, to: str) -> NoteMoved:
        here, there = "/".join(self._parts(path)), "/".join(self._parts(to))
        move = self._mover.move(here, there)
        if move is None:
            raise self._missing(here)
        return move.told()

    def _create_index(self, folder: str, title: str) -> NoteWritten:
        notes = [note.path for note in self._list(folder)]
        if len(notes) > MOST_INDEXED:
            raise ToolRetry(
                f"there are {len(notes):,} notes, and an index lists at most {MOST_INDEXED:,}.",
                hint="Name a folder in it.",
            )
        parts = spelled(self.root, folder_parts(folder))
        path = "/".join([*parts, folder_index.NAME])
        path = next((note for note in notes if note.casefold() == path.casefold()), path)
        names = Names(note.path for note in self.index.notes())
        entries = [self._entry(note) for note in notes if note != path]
        made = folder_index.listing(filter(None, entries), source=path, names=names)
        text, version = None, ""
        with suppress(FileNotFoundError):
            content = read_file(self.root, PurePosixPath(path).parts)
            text, version = content.text, content.version
        heading = " ".join(title.split()) or (parts[-1] if parts else "Index")
        return self._write(path, folder_index.with_listing(text, made, title=heading), version)

    def _entry(self, path: str) -> folder_index.Entry | None:
        with suppress(OSError, DodonaError):  # gone, or a link by now
            content = read_file(self.root, PurePosixPath(path).parts)
            return folder_index.entry(parse_note(path, content.text))
        return None

    def _backlinks(self, path: str) -> builtins.list[Backlink]:
        found, _ = self._content(path)
        return self.index.backlinks(found)

    def _versions(self, paths: tuple[str, ...]) -> dict[str, str]:
        found: dict[str, str] = {}
        for path in paths:
            with suppress(OSError, DodonaError):
                found[path] = read_file(self.root, self._parts(path)).version
        return found

    def _missing(self, path: str) -> NotFound:
        """A note that is not there, with the one that may be meant."""
        paths = [note.path for note in self.index.notes()]
        name = PurePosixPath(path).name.casefold()
        same = [known for known in paths if PurePosixPath(known).name.casefold() == name]
        near = f"Did you mean '{same[0]}'?" if same else did_you_mean(path, paths[:MOST_COMPARED])
        return NotFound(
            f"there is no note '{path}'.", hint=near or "Search for it, or list the folder."
        )

    async def _used(self, work: Callable[[], T]) -> T:
        def done() -> T:
            self._settle()
            return work()

        return await _in_thread(done)

    async def _changed(self, work: Callable[[], T], *, is_moving: bool = False) -> T:
        def done() -> T:
            with self._alone():
                try:
                    self._mover.recover()
                except (OSError, DodonaError) as error:
                    if is_moving:
                        raise ToolFailed(f"an earlier move cannot be finished: {error}") from error
                    _log.warning("a move cannot be finished: %s", error)
                return work()

        async with self._writing:
            return await _in_thread(done)

    @contextmanager
    def _alone(self, *, wait: float = WAIT_SECONDS) -> Generator[None]:
        """The only one who writes, in all processes. The lock is never in the vault."""
        self._lock.parent.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            try:
                stack.enter_context(file_lock(self._lock, wait=wait))
            except BlockingIOError:
                raise ToolFailed(
                    "another process is writing to the vault.", hint="Try again in a moment."
                ) from None
            yield

    def _settle(self) -> None:
        """Finish a move that a crash has cut, unless somebody is at work on it just now."""
        with self._settling:
            now = self._moves.stamp()
            if now == self._settled:
                return
            try:
                if self._moves.begun() is not None:
                    with self._alone(wait=0.0):
                        self._mover.recover()
            except (OSError, DodonaError) as error:
                _log.info("a move is not finished yet: %s", error)
            else:
                self._settled = now


def _matters(path: PurePath) -> bool:
    """What is hidden is nobody's note."""
    return not any(part.startswith(".") for part in path.parts)


class _Stopped(DodonaError):
    """Whoever followed the vault stops."""


def _unless(stop: threading.Event) -> None:
    if stop.is_set():
        raise _Stopped("stopped")


@cache
def _threads() -> WorkerThreads:
    """For all vaults together; a disk that hangs blocks none but these."""
    return WorkerThreads(8, "dodona-vault", whom="the vault")


async def _in_thread(work: Callable[[], T]) -> T:
    """What the work returns; an error of the disk is told without the paths of this machine."""
    try:
        return await _threads().submit(work)
    except OSError as error:
        raise ToolFailed(f"the vault cannot be used: {error.strerror or 'disk error'}.") from error
