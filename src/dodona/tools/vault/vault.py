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
    NoteMove,
    NoteSummary,
    NoteText,
    NoteWriteResult,
)
from dodona.core.errors import DodonaError, NotFound, ToolFailed, ToolRetry, did_you_mean
from dodona.tools.folder_watcher import FolderWatcher
from dodona.tools.rebuildable_db import LOCK_TIMEOUT_SECONDS, file_lock
from dodona.tools.vault.index import folder_index
from dodona.tools.vault.index.index import VaultIndex
from dodona.tools.vault.moves.move_log import MoveLog
from dodona.tools.vault.moves.move_service import Mover
from dodona.tools.vault.notes.files import (
    NoteContent,
    read_file,
    resolve_spelling,
    version_of,
    write_file,
)
from dodona.tools.vault.notes.links import LinkResolver
from dodona.tools.vault.notes.notes import parse_note
from dodona.tools.vault.notes.paths import folder_parts, note_parts

MAX_SUGGESTION_CANDIDATES: Final = 2_000  # paths that a wrong one is compared with
MAX_FOLDER_INDEX_NOTES: Final = 2_000  # notes that an index may list

_log = logging.getLogger(__name__)
T = TypeVar("T")


class Vault:
    """The `Notes` below `root`; their index is at `index_path`, which must be no note's place.

    Everything that touches a disk happens in threads. Writers take turns, also those of other
    processes; each of them first finishes a move that a crash has cut.
    """

    def __init__(self, root: Path, index_path: Path) -> None:
        self.root = root
        self.index = VaultIndex(root, index_path, is_watched=lambda: self.is_watched)
        self._watcher: FolderWatcher | None = None
        self._lock_path = index_path.with_suffix(".lock")
        self._move_log = MoveLog(index_path.with_suffix(".moves"))
        self._mover = Mover(root, self.index, self._move_log)
        self._recovery_lock = threading.Lock()
        self._recovered_stamp: tuple[int, int] | None = None
        # Who waits for another writer waits here, and not in a thread that readers need.
        self._write_lock = asyncio.Lock()

    @property
    def is_watched(self) -> bool:
        return self._watcher is not None and self._watcher.is_up_to_date

    def watch(self) -> None:
        """Take changes in as they are made, until it is closed."""
        if self._watcher is None:
            self._watcher = FolderWatcher(
                [self.root], self._index_changes, path_filter=_is_visible, label="vault"
            )

    async def close(self) -> None:
        """Follow no more, and leave the index when nobody uses it any more."""
        if self._watcher is not None:
            await _run_in_thread(self._watcher.close)
            self._watcher = None
        await _run_in_thread(self.index.close)

    async def refresh_index(self, progress: Callable[[int, int], None]) -> None:
        """Bring the index up to date; `progress` is told in a thread how many notes are done."""
        await self._run_read(lambda: self.index.refresh(progress))

    async def read(self, path: str) -> NoteText:
        return await self._run_read(lambda: self._read(path))

    async def write(
        self, path: str, content: str, *, version: str | None = None
    ) -> NoteWriteResult:
        """Make the content the whole of a note, at once, if the note has this version.

        Without one there must be no note. Conflict when it is otherwise, unless the note says
        already what it should. An editor that does not take our lock can come between our last
        look and the write, which are microseconds apart.
        """
        return await self._run_write(lambda: self._write(path, content, version or ""))

    async def search(self, query: str, limit: int) -> list[NoteHit]:
        return await self._run_read(lambda: self.index.search(query, limit))

    async def find_relevant(self, question: str, limit: int) -> list[NoteSummary]:
        """The notes that fit a question best, then those that were changed last."""
        return await self._run_read(lambda: self.index.find_relevant(question, limit))

    async def list(self, folder: str = "") -> builtins.list[NoteSummary]:
        """The notes of a folder and of those below it, in the order of paths."""
        return await self._run_read(lambda: self._list(folder))

    async def move(self, path: str, to: str) -> NoteMove:
        """Move a note, and change every link to it. Made again, it tells what was done."""
        return await self._run_write(lambda: self._move(path, to), is_move=True)

    async def moves(self, limit: int = 20) -> builtins.list[NoteMove]:
        """The latest moves that can be undone, the newest first."""
        return await self._run_read(
            lambda: [move.to_note_move() for move in self._move_log.list_undoable(limit)]
        )

    async def undo(self, move: int | None = None) -> NoteMove:
        """Take a move back, by default the latest that was not made by this; it is a move too."""
        return await self._run_write(lambda: self._mover.undo(move).to_note_move(), is_move=True)

    async def create_index(self, folder: str, *, title: str = "") -> NoteWriteResult:
        """Write `index.md` into a folder; the title is for one that is not there yet."""
        return await self._run_write(lambda: self._create_index(folder, title))

    async def backlinks(self, path: str) -> builtins.list[Backlink]:
        return await self._run_read(lambda: self._backlinks(path))

    async def tags(self) -> builtins.list[tuple[str, int]]:
        return await self._run_read(self.index.tags)

    async def versions(self, paths: tuple[str, ...]) -> dict[str, str]:
        """The versions that notes have now; those that are gone are missing."""
        return await self._run_read(lambda: self._versions(paths))

    def _index_changes(self, changed: Sequence[PurePath] | None, stop: threading.Event) -> None:
        if changed is None:
            self.index.refresh(lambda done, total: _raise_if_stopped(stop))
        else:
            self.index.reindex(path.relative_to(self.root).as_posix() for path in changed)

    def _resolve_parts(self, path: str) -> tuple[str, ...]:
        return resolve_spelling(self.root, note_parts(path))

    def _read_content(self, path: str) -> tuple[str, NoteContent]:
        parts = self._resolve_parts(path)
        try:
            return "/".join(parts), read_file(self.root, parts)
        except FileNotFoundError:
            raise self._not_found_error("/".join(parts)) from None

    def _read(self, path: str) -> NoteText:
        found, content = self._read_content(path)
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

    def _write(self, path: str, content: str, version: str) -> NoteWriteResult:
        parts = self._resolve_parts(path)
        outcome = write_file(self.root, parts, text=content, version=version)
        note = parse_note("/".join(parts), content)
        try:
            self.index.reindex([note.path])
        except (OSError, DodonaError) as error:
            # The note is written, whether or not the index can be.
            _log.warning("the index does not know of a note yet: %s", error)
        return NoteWriteResult(
            note.path, note.title, note.lines, version_of(content.encode()), outcome
        )

    def _list(self, folder: str) -> builtins.list[NoteSummary]:
        parts = resolve_spelling(self.root, folder_parts(folder))
        notes = self.index.notes()
        inside = [note for note in notes if PurePosixPath(note.path).parts[: len(parts)] == parts]
        if parts and not inside:
            folders = {str(above) for n in notes for above in PurePosixPath(n.path).parents}
            name = "/".join(parts)
            raise NotFound(
                f"there is no folder '{name}' with notes.",
                hint=did_you_mean(name, sorted(folders - {"."})[:MAX_SUGGESTION_CANDIDATES]),
            )
        return inside

    def _move(self, path: str, to: str) -> NoteMove:
        here, there = "/".join(self._resolve_parts(path)), "/".join(self._resolve_parts(to))
        move = self._mover.move(here, there)
        if move is None:
            raise self._not_found_error(here)
        return move.to_note_move()

    def _create_index(self, folder: str, title: str) -> NoteWriteResult:
        notes = [note.path for note in self._list(folder)]
        if len(notes) > MAX_FOLDER_INDEX_NOTES:
            raise ToolRetry(
                f"there are {len(notes):,} notes, and an index lists at most {MAX_FOLDER_INDEX_NOTES:,}.",
                hint="Name a folder in it.",
            )
        parts = resolve_spelling(self.root, folder_parts(folder))
        path = "/".join([*parts, folder_index.INDEX_FILE_NAME])
        path = next((note for note in notes if note.casefold() == path.casefold()), path)
        names = LinkResolver(note.path for note in self.index.notes())
        entries = [self._build_index_entry(note) for note in notes if note != path]
        made = folder_index.format_listing(filter(None, entries), source=path, resolver=names)
        text, version = None, ""
        with suppress(FileNotFoundError):
            content = read_file(self.root, PurePosixPath(path).parts)
            text, version = content.text, content.version
        heading = " ".join(title.split()) or (parts[-1] if parts else "Index")
        return self._write(path, folder_index.insert_listing(text, made, title=heading), version)

    def _build_index_entry(self, path: str) -> folder_index.FolderIndexEntry | None:
        with suppress(OSError, DodonaError):  # gone, or a link by now
            content = read_file(self.root, PurePosixPath(path).parts)
            return folder_index.build_entry(parse_note(path, content.text))
        return None

    def _backlinks(self, path: str) -> builtins.list[Backlink]:
        found, _ = self._read_content(path)
        return self.index.backlinks(found)

    def _versions(self, paths: tuple[str, ...]) -> dict[str, str]:
        found: dict[str, str] = {}
        for path in paths:
            with suppress(OSError, DodonaError):
                found[path] = read_file(self.root, self._resolve_parts(path)).version
        return found

    def _not_found_error(self, path: str) -> NotFound:
        """A note that is not there, with the one that may be meant."""
        paths = [note.path for note in self.index.notes()]
        name = PurePosixPath(path).name.casefold()
        same = [known for known in paths if PurePosixPath(known).name.casefold() == name]
        near = (
            f"Did you mean '{same[0]}'?"
            if same
            else did_you_mean(path, paths[:MAX_SUGGESTION_CANDIDATES])
        )
        return NotFound(
            f"there is no note '{path}'.", hint=near or "Search for it, or list the folder."
        )

    async def _run_read(self, work: Callable[[], T]) -> T:
        def done() -> T:
            self._recover_interrupted_move()
            return work()

        return await _run_in_thread(done)

    async def _run_write(self, work: Callable[[], T], *, is_move: bool = False) -> T:
        def done() -> T:
            with self._exclusive_lock():
                try:
                    self._mover.recover()
                except (OSError, DodonaError) as error:
                    if is_move:
                        raise ToolFailed(f"an earlier move cannot be finished: {error}") from error
                    _log.warning("a move cannot be finished: %s", error)
                return work()

        async with self._write_lock:
            return await _run_in_thread(done)

    @contextmanager
    def _exclusive_lock(self, *, timeout: float = LOCK_TIMEOUT_SECONDS) -> Generator[None]:
        """The only one who writes, in all processes. The lock is never in the vault."""
        self._lock_path.parent.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            try:
                stack.enter_context(file_lock(self._lock_path, timeout=timeout))
            except BlockingIOError:
                raise ToolFailed(
                    "another process is writing to the vault.", hint="Try again in a moment."
                ) from None
            yield

    def _recover_interrupted_move(self) -> None:
        """Finish a move that a crash has cut, unless somebody is at work on it just now."""
        with self._recovery_lock:
            now = self._move_log.file_stamp()
            if now == self._recovered_stamp:
                return
            try:
                if self._move_log.find_unfinished() is not None:
                    with self._exclusive_lock(timeout=0.0):
                        self._mover.recover()
            except (OSError, DodonaError) as error:
                _log.info("a move is not finished yet: %s", error)
            else:
                self._recovered_stamp = now


def _is_visible(path: PurePath) -> bool:
    """What is hidden is nobody's note."""
    return not any(part.startswith(".") for part in path.parts)


class _WatchStopped(DodonaError):
    """Whoever followed the vault stops."""


def _raise_if_stopped(stop: threading.Event) -> None:
    if stop.is_set():
        raise _WatchStopped("stopped")


@cache
def _threads() -> WorkerThreads:
    """For all vaults together; a disk that hangs blocks none but these."""
    return WorkerThreads(8, "dodona-vault", owner="the vault")


async def _run_in_thread(work: Callable[[], T]) -> T:
    """What the work returns; an error of the disk is told without the paths of this machine."""
    try:
        return await _threads().submit(work)
    except OSError as error:
        raise ToolFailed(f"the vault cannot be used: {error.strerror or 'disk error'}.") from error
