"""A vault: a folder of Markdown notes that an agent can search, read and write."""

from __future__ import annotations

import asyncio
import builtins
import logging
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path, PurePath, PurePosixPath
from typing import Final, TypeAlias, TypeVar

from dodona.concurrency.file_watcher import FileWatcher
from dodona.concurrency.workers import WorkerThreads
from dodona.core.domain.knowledge.notes import (
    Backlink,
    NoteHit,
    NoteMove,
    NoteSummary,
    NoteTag,
    NoteText,
    NoteWriteResult,
)
from dodona.core.domain.trust import Marks, sort_marks
from dodona.core.errors import DodonaError, NotFound, ToolFailed, ToolRetry, did_you_mean
from dodona.tools.index_follower import IndexFollower
from dodona.tools.presentation import MAX_SUGGESTION_CANDIDATES, suggest_path
from dodona.tools.rebuildable_db import LOCK_TIMEOUT_SECONDS, file_lock
from dodona.tools.vault.index import folder_index
from dodona.tools.vault.index.index import VaultIndex
from dodona.tools.vault.moves.move_log import MoveLog
from dodona.tools.vault.moves.mover import Mover
from dodona.tools.vault.notes.blocks import note_keys
from dodona.tools.vault.notes.files import (
    NoteContent,
    new_names,
    read_file,
    remove_empty_folders,
    remove_file,
    resolve_spelling,
    version_of,
    write_file,
)
from dodona.tools.vault.notes.links import LinkResolver
from dodona.tools.vault.notes.marks import (
    NO_LOOKUP,
    MarkLookup,
    NoteChange,
    RecordChanges,
    record_nothing,
)
from dodona.tools.vault.notes.notes import parse_note
from dodona.tools.vault.notes.paths import folder_parts, note_parts

MAX_FOLDER_INDEX_NOTES: Final = 2_000  # notes per index.md

_NOT_FOUND_HINT: Final = "Search for it, or list the folder."

_log = logging.getLogger(__name__)
T = TypeVar("T")
BeforeRemove: TypeAlias = Callable[[bytes], None]


class Vault:
    """The `Notes` below `root`; the index file `index_path` must not be in the vault's notes.

    All disk access happens in threads. Writers take turns across processes; each one first finishes
    a move that a crash interrupted.
    """

    def __init__(self, root: Path, index_path: Path) -> None:
        self.root = root
        self.index = VaultIndex(root, index_path)
        self._lock_path = index_path.with_suffix(".lock")
        self._move_log = MoveLog(index_path.with_suffix(".moves"))
        self._mover = Mover(root, self.index, self._move_log)
        self._recovery_lock = threading.Lock()
        self._recovered_stamp: tuple[int, int] | None = None
        # Writers wait here rather than in a thread that readers need.
        self._write_lock = asyncio.Lock()

    @property
    def is_watched(self) -> bool:
        """Whether the folder is watched and all changes are indexed."""
        return self.index.follower is not None and self.index.follower.is_up_to_date

    @property
    def is_behind(self) -> bool:
        """Whether recent changes are still being indexed, so that results may lack them."""
        return self.index.is_behind

    def watch(self, watcher: FileWatcher) -> None:
        """Index changes as they happen, until `close`."""
        if self.index.follower is None:
            self.index.follower = IndexFollower(
                watcher, [self.root], self._index_changes, path_filter=_is_visible, label="vault"
            )

    async def close(self) -> None:
        """Stop watching, and close the index when it is no longer in use."""
        follower, self.index.follower = self.index.follower, None
        if follower is not None:
            await _run_in_thread(follower.close)
        await _run_in_thread(self.index.close)

    async def refresh_index(self, progress: Callable[[int, int], None]) -> None:
        """Refresh the index; `progress` is called in a thread with the done and total counts."""
        await self._run_read(lambda: self.index.refresh(progress))

    async def read(self, path: str, lookup: MarkLookup = NO_LOOKUP) -> NoteText:
        """Return a note."""
        return await self._run_read(lambda: self._read(path, lookup))

    async def write(
        self,
        path: str,
        content: str,
        *,
        version: str | None = None,
        record: RecordChanges = record_nothing,
    ) -> NoteWriteResult:
        """Replace a note atomically, if it has this version.

        Without a version, the note must not exist. Raises Conflict otherwise, unless the note
        already has this content. An editor that does not use our lock can still write between our
        last check and the write, which are microseconds apart.
        """
        return await self._run_write(
            lambda: self._write(path, content, version or "", record), record
        )

    async def search(self, query: str, limit: int, lookup: MarkLookup = NO_LOOKUP) -> list[NoteHit]:
        """Return the best sections for a query."""
        return await self._run_read(lambda: self.index.search(query, limit, lookup))

    async def search_sections(
        self, words: Sequence[str], limit: int, lookup: MarkLookup = NO_LOOKUP
    ) -> list[NoteHit]:
        """Return whole sections with any of the words, unranked."""
        return await self._run_read(lambda: self.index.search_sections(words, limit, lookup))

    async def count_words(self, words: Sequence[str]) -> tuple[int, dict[str, int]]:
        """Return the number of sections, and for each word how many have it."""
        return await self._run_read(lambda: self.index.count_words(words))

    async def find_relevant(
        self, question: str, limit: int, lookup: MarkLookup = NO_LOOKUP
    ) -> list[NoteSummary]:
        """Return the notes that match a question best, then the most recently changed."""
        return await self._run_read(lambda: self.index.find_relevant(question, limit, lookup))

    async def list(
        self, folder: str = "", lookup: MarkLookup = NO_LOOKUP
    ) -> builtins.list[NoteSummary]:
        """Return the notes of a folder and its subfolders, sorted by path."""
        return await self._run_read(lambda: self._list(folder, lookup))

    async def marks(self, paths: Sequence[str], lookup: MarkLookup) -> Marks:
        """Return the marks of all these notes."""
        return await self._run_read(lambda: self.index.marks(paths, lookup))

    async def move(self, path: str, to: str, record: RecordChanges = record_nothing) -> NoteMove:
        """Move a note and update every link to it. A repeated call returns the finished move."""
        return await self._run_write(lambda: self._move(path, to, record), record, is_move=True)

    async def moves(self, limit: int = 20) -> builtins.list[NoteMove]:
        """Return the latest moves that can be undone, newest first."""
        return await self._run_read(
            lambda: [move.to_note_move() for move in self._move_log.list_undoable(limit)]
        )

    async def undo(
        self,
        move: int | None = None,
        record: RecordChanges = record_nothing,
        paths: tuple[str, str] | None = None,
    ) -> NoteMove:
        """Undo a move, by default the latest that is not an undo. The undo is a move too.

        With `paths`, the move must be from the first to the second.
        """
        return await self._run_write(
            lambda: self._mover.undo(move, record, paths).to_note_move(), record, is_move=True
        )

    async def remove(
        self, path: str, *, version: str, record: RecordChanges, before_remove: BeforeRemove
    ) -> None:
        """Remove a note that has this version. `before_remove` gets its content first."""
        await self._run_write(lambda: self._remove(path, version, before_remove), record)

    async def create_index(
        self, folder: str, *, title: str = "", record: RecordChanges = record_nothing
    ) -> NoteWriteResult:
        """Write `index.md` in a folder; the title is used only for a new one."""
        return await self._run_write(lambda: self._create_index(folder, title, record), record)

    async def backlinks(self, path: str, lookup: MarkLookup = NO_LOOKUP) -> builtins.list[Backlink]:
        """Return the lines that link to a note."""
        return await self._run_read(lambda: self._backlinks(path, lookup))

    async def tags(self, lookup: MarkLookup = NO_LOOKUP) -> builtins.list[NoteTag]:
        """Return every tag with its number of notes."""
        return await self._run_read(lambda: self.index.tags(lookup))

    async def resolve_path(self, path: str) -> str:
        """Return the path of a note as its file is named. The note may be gone."""
        return await self._run_read(lambda: "/".join(self._resolve_parts(path)))

    async def versions(self, paths: tuple[str, ...]) -> dict[str, str]:
        """Return the current versions of notes; missing notes are left out."""
        return await self._run_read(lambda: self._versions(paths))

    def _index_changes(self, changed: Sequence[PurePath] | None, stop: threading.Event) -> None:
        if changed is None:
            self.index.refresh(stop=stop)
        else:
            paths = (path.relative_to(self.root).as_posix() for path in changed)
            self.index.update(("" if path == "." else path for path in paths), stop)

    def _resolve_parts(self, path: str) -> tuple[str, ...]:
        return resolve_spelling(self.root, note_parts(path))

    def _read_content(self, path: str, lookup: MarkLookup) -> tuple[str, NoteContent]:
        parts = self._resolve_parts(path)
        try:
            return "/".join(parts), read_file(self.root, parts)
        except FileNotFoundError:
            raise self._not_found_error("/".join(parts), lookup) from None

    def _read(self, path: str, lookup: MarkLookup) -> NoteText:
        resolved, content = self._read_content(path, lookup)
        note = parse_note(resolved, content.text)
        return NoteText(
            path=resolved,
            title=note.title,
            tags=note.tags,
            text=content.text,
            lines=note.lines,
            version=content.version,
            is_cut=content.is_cut,
            marks=tuple(sort_marks(lookup.of_text(resolved, content.text))),
        )

    def _write(
        self,
        path: str,
        content: str,
        version: str,
        record: RecordChanges,
        *,
        sources: Mapping[str, Sequence[int]] | None = None,
    ) -> NoteWriteResult:
        parts = self._resolve_parts(path)
        resolved, names = "/".join(parts), new_names(self.root, parts)

        def before_replace(old: bytes | None, new: bytes) -> None:
            change = NoteChange(
                path=resolved,
                old_path=resolved,
                old=old,
                new=new,
                new_names=names if old is None else (),
                sources=sources or {},
            )
            record([change])

        outcome = write_file(
            self.root, parts, text=content, version=version, before_replace=before_replace
        )
        note = parse_note(resolved, content)
        self._update_index(note.path)
        return NoteWriteResult(
            note.path, note.title, note.lines, version_of(content.encode()), outcome
        )

    def _remove(self, path: str, version: str, before_remove: BeforeRemove) -> None:
        parts = self._resolve_parts(path)
        remove_file(self.root, parts, version=version, before_remove=before_remove)
        remove_empty_folders(self.root, parts[:-1])
        self._update_index("/".join(parts))

    def _update_index(self, path: str) -> None:
        """Update the index. The note is changed even if this fails."""
        try:
            self.index.update([path])
        except (OSError, DodonaError) as error:
            _log.warning("cannot index a note yet: %s", error)

    def _list(self, folder: str, lookup: MarkLookup = NO_LOOKUP) -> builtins.list[NoteSummary]:
        parts = resolve_spelling(self.root, folder_parts(folder))
        notes = self.index.notes(lookup)
        matching = [note for note in notes if PurePosixPath(note.path).parts[: len(parts)] == parts]
        if parts and not matching:
            # An error has no marks, so it names nothing that has.
            unmarked = (note.path for note in notes if not note.marks)
            folders = {str(parent) for path in unmarked for parent in PurePosixPath(path).parents}
            name = "/".join(parts)
            raise NotFound(
                f"there is no folder '{name}' with notes.",
                hint=did_you_mean(name, sorted(folders - {"."})[:MAX_SUGGESTION_CANDIDATES]),
            )
        return matching

    def _move(self, path: str, to: str, record: RecordChanges) -> NoteMove:
        source, target = "/".join(self._resolve_parts(path)), "/".join(self._resolve_parts(to))
        move = self._mover.move(source, target, record)
        if move is None:
            raise NotFound(f"there is no note '{source}'.", hint=_NOT_FOUND_HINT)
        return move.to_note_move()

    def _create_index(self, folder: str, title: str, record: RecordChanges) -> NoteWriteResult:
        notes = [note.path for note in self._list(folder)]
        if len(notes) > MAX_FOLDER_INDEX_NOTES:
            raise ToolRetry(
                f"there are {len(notes):,} notes; an index can list at most "
                f"{MAX_FOLDER_INDEX_NOTES:,}.",
                hint="Choose a subfolder.",
            )
        parts = resolve_spelling(self.root, folder_parts(folder))
        path = "/".join([*parts, folder_index.INDEX_FILE_NAME])
        path = next((note for note in notes if note.casefold() == path.casefold()), path)
        resolver = LinkResolver(note.path for note in self.index.notes())
        keys: dict[str, Sequence[int]] = {}
        entries = [self._build_index_entry(note, keys) for note in notes if note != path]
        listing = folder_index.format_listing(filter(None, entries), source=path, resolver=resolver)
        text, version = None, ""
        with suppress(FileNotFoundError):
            content = read_file(self.root, PurePosixPath(path).parts)
            text, version = content.text, content.version
        heading = " ".join(title.split()) or (parts[-1] if parts else "Index")
        new_text = folder_index.insert_listing(text, listing, title=heading)
        return self._write(path, new_text, version, record, sources=keys)

    def _build_index_entry(
        self, path: str, keys: dict[str, Sequence[int]]
    ) -> folder_index.FolderIndexEntry | None:
        """Return the entry of a note, and add the keys of its blocks to `keys`."""
        with suppress(OSError, DodonaError):  # removed, or replaced by a link
            content = read_file(self.root, PurePosixPath(path).parts)
            keys[path] = note_keys(path, content.text)
            return folder_index.build_entry(parse_note(path, content.text))
        return None

    def _backlinks(self, path: str, lookup: MarkLookup) -> builtins.list[Backlink]:
        resolved, _ = self._read_content(path, lookup)
        return self.index.backlinks(resolved, lookup)

    def _versions(self, paths: tuple[str, ...]) -> dict[str, str]:
        versions: dict[str, str] = {}
        for path in paths:
            with suppress(OSError, DodonaError):
                versions[path] = read_file(self.root, self._resolve_parts(path)).version
        return versions

    def _not_found_error(self, path: str, lookup: MarkLookup) -> NotFound:
        """Return the error for a missing note, with a suggestion: a note without marks."""
        paths = [note.path for note in self.index.notes(lookup) if not note.marks]
        hint = suggest_path(path, paths, otherwise=_NOT_FOUND_HINT)
        return NotFound(f"there is no note '{path}'.", hint=hint)

    async def _run_read(self, work: Callable[[], T]) -> T:
        def run() -> T:
            self._recover_interrupted_move()
            return work()

        return await _run_in_thread(run)

    async def _run_write(
        self, work: Callable[[], T], record: RecordChanges, *, is_move: bool = False
    ) -> T:
        def run() -> T:
            with self._exclusive_lock():
                try:
                    self._mover.recover(record)
                except (OSError, DodonaError) as error:
                    if is_move:
                        raise ToolFailed(f"an earlier move cannot be finished: {error}") from error
                    _log.warning("a move cannot be finished: %s", error)
                return work()

        async with self._write_lock:
            return await _run_in_thread(run)

    @contextmanager
    def _exclusive_lock(self, *, timeout: float = LOCK_TIMEOUT_SECONDS) -> Generator[None]:
        """Hold the write lock of the vault, across processes. Its file is not in the vault."""
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
        """Finish a move that a crash interrupted, unless it is still in progress."""
        with self._recovery_lock:
            stamp = self._move_log.file_stamp()
            if stamp == self._recovered_stamp:
                return
            try:
                if self._move_log.find_unfinished() is not None:
                    with self._exclusive_lock(timeout=0.0):
                        # The marks of the planned changes were stored before the crash.
                        self._mover.recover(record_nothing)
            except (OSError, DodonaError) as error:
                _log.info("a move is not finished yet: %s", error)
            else:
                self._recovered_stamp = stamp


def _is_visible(path: PurePath) -> bool:
    """Whether a path is not hidden: hidden files are never notes."""
    return not any(part.startswith(".") for part in path.parts)


@cache
def _threads() -> WorkerThreads:
    """Threads for all vaults, so that a hanging disk blocks nothing else."""
    return WorkerThreads(8, "dodona-vault", owner="the vault")


async def _run_in_thread(work: Callable[[], T]) -> T:
    """Run `work` in a thread. Disk errors are reported without local paths."""
    try:
        return await _threads().submit(work)
    except OSError as error:
        raise ToolFailed(f"the vault is unavailable: {error.strerror or 'disk error'}.") from error
