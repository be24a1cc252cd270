"""A project's code: some folders with one index, which an agent may search and read.

Before it is used the index is brought up to date, unless it follows its folders. When that takes
long, as the first time, it goes on meanwhile and the answers come from what is there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path, PurePath
from threading import Event
from time import monotonic
from typing import Final, TypeVar

from dodona.concurrency.workers import WorkerThreads
from dodona.core.domain.knowledge.code import (
    CodeHit,
    CodeText,
    Definition,
    IndexProgress,
    IndexState,
    Reference,
)
from dodona.core.errors import ToolFailed, ToolRetry
from dodona.tools.code.files.folders import CodeFolders
from dodona.tools.code.files.ignore_rules import IGNORE_FILES
from dodona.tools.code.index.index import CodeIndex
from dodona.tools.code.semantic.search import SemanticScorer
from dodona.tools.folder_watcher import FolderWatcher

REFRESH_INTERVAL_SECONDS: Final = 3.0  # for which the folders are not looked at again
REFRESH_TIMEOUT_SECONDS: Final = 3.0  # seconds that a question waits for the index

# Whatever is built changes all the time, and is mostly ignored.
_UNWATCHED_FOLDERS: Final = frozenset({"node_modules", "__pycache__", "target", "dist", "build"})

_log = logging.getLogger(__name__)
T = TypeVar("T")


class IndexedCode:
    """The code in `roots`; their index is at `path`, which must be in none of them.

    With `meaning`, which stays its owner's, a search ranks by that too.
    """

    def __init__(
        self,
        roots: Sequence[Path],
        path: Path,
        *,
        max_file_kb: int = 1024,
        scorer: SemanticScorer | None = None,
    ) -> None:
        self._index = CodeIndex(
            CodeFolders(roots), path, max_bytes=max_file_kb * 1024, scorer=scorer
        )
        self._watcher: FolderWatcher | None = None
        self._pending_refresh: asyncio.Future[IndexState] | None = None
        self._wait_deadline = 0.0
        self._fresh_until = 0.0
        self._stop = Event()

    async def search(self, query: str, limit: int) -> list[CodeHit]:
        await self._wait_until_fresh()
        return await _run_in_thread(lambda: self._index.search(query, limit))

    async def definitions(self, name: str, limit: int) -> list[Definition]:
        """Those of the name; else of one in another case; else of the nearest names there are."""
        await self._wait_until_fresh()
        return await _run_in_thread(lambda: self._index.definitions(name, limit))

    async def references(self, name: str, limit: int) -> list[Reference]:
        await self._wait_until_fresh()
        return await _run_in_thread(lambda: self._index.references(name, limit))

    async def repo_map(self, tokens: int, focus: str = "") -> str:
        await self._wait_until_fresh()
        return await _run_in_thread(lambda: self._index.repo_map(tokens, focus))

    async def read(self, path: str, first: int = 1, last: int | None = None) -> CodeText:
        return await _run_in_thread(lambda: self._index.read(path, first, last))

    async def versions(self, paths: tuple[str, ...]) -> dict[str, str]:
        return await _run_in_thread(lambda: self._index.versions(paths))

    async def state(self) -> IndexState:
        return await _run_in_thread(self._index.state)

    async def refresh(self, progress: Callable[[IndexProgress], None] | None = None) -> IndexState:
        """Take in all that has changed. `progress` is called in a thread.

        Whoever cancels it waits until the file in hand is done; what was taken in stays.
        """
        stop = Event()
        work = _indexing_workers().submit(lambda: self._index.refresh(progress, stop=stop))
        try:
            state = await asyncio.shield(work)
        except asyncio.CancelledError:
            stop.set()
            await asyncio.wait({work})
            raise
        except OSError as error:
            raise _disk_error(error) from error
        self._fresh_until = monotonic() + REFRESH_INTERVAL_SECONDS
        return state

    async def rebuild(self, progress: Callable[[IndexProgress], None] | None = None) -> IndexState:
        """Make the index from nothing."""
        await _run_in_thread(self._index.discard)
        return await self.refresh(progress)

    async def watch(self) -> None:
        """Follow the folders until it is closed."""
        if self._watcher is None:
            roots = [folder.root for folder in self._index.folders.all]
            self._watcher = FolderWatcher(
                roots,
                lambda _, stop: self._refresh_blocking(stop),
                path_filter=_is_watched_path,
                label="code",
            )

    @property
    def is_watched(self) -> bool:
        return self._watcher is not None and self._watcher.is_up_to_date

    async def close(self) -> None:
        """Stop what goes on, and keep what it has done."""
        self._stop.set()
        if self._watcher is not None:
            await _run_in_thread(self._watcher.close)
        if self._pending_refresh is not None:
            await asyncio.wait({self._pending_refresh})
        await _run_in_thread(self._index.close)

    def _refresh_blocking(self, stop: Event) -> None:
        self._index.refresh(stop=stop)

    async def _wait_until_fresh(self) -> None:
        """Wait for an index that knows the files as they are, but not for long."""
        now = monotonic()
        if self._pending_refresh is None and now > self._fresh_until and not self.is_watched:
            work = _indexing_workers().submit(
                lambda: self._index.refresh(stop=self._stop, wait_for_lock=False)
            )
            work.add_done_callback(self._on_refresh_done)
            self._pending_refresh = work
            self._wait_deadline = now + REFRESH_TIMEOUT_SECONDS
        if self._pending_refresh is not None:
            await asyncio.wait({self._pending_refresh}, timeout=max(self._wait_deadline - now, 0.0))

    def _on_refresh_done(self, done: asyncio.Future[IndexState]) -> None:
        self._pending_refresh = None
        self._fresh_until = monotonic() + REFRESH_INTERVAL_SECONDS
        if not done.cancelled() and (error := done.exception()) is not None:
            _log.warning("the index of the code is not up to date: %s", error)


class NoCode:
    """The code of a project that has none."""

    async def search(self, query: str, limit: int) -> list[CodeHit]:
        return []

    async def definitions(self, name: str, limit: int) -> list[Definition]:
        return []

    async def references(self, name: str, limit: int) -> list[Reference]:
        return []

    async def repo_map(self, tokens: int, focus: str = "") -> str:
        return ""

    async def read(self, path: str, first: int = 1, last: int | None = None) -> CodeText:
        raise ToolRetry("this project has no code.", hint="Add some with: dodona index PATH")

    async def versions(self, paths: tuple[str, ...]) -> dict[str, str]:
        return {}

    async def refresh(self, progress: Callable[[IndexProgress], None] | None = None) -> IndexState:
        return _EMPTY_STATE

    async def state(self) -> IndexState:
        return _EMPTY_STATE


_EMPTY_STATE: Final = IndexState(0, 0, 0, 0, 0, 0, 0, 0, 0.0)


def _is_watched_path(path: PurePath) -> bool:
    return not any(
        part in _UNWATCHED_FOLDERS or (part.startswith(".") and part not in IGNORE_FILES)
        for part in path.parts
    )


@cache
def _query_workers() -> WorkerThreads:
    """For all questions about code; a disk that hangs blocks none but these."""
    return WorkerThreads(8, "dodona-code", owner="the code")


@cache
def _indexing_workers() -> WorkerThreads:
    """For what takes long, so that questions never wait for it."""
    return WorkerThreads(4, "dodona-indexing", owner="the code")


async def _run_in_thread(work: Callable[[], T]) -> T:
    """What the work returns; an error of the disk is told without the paths of this machine."""
    try:
        return await _query_workers().submit(work)
    except OSError as error:
        raise _disk_error(error) from error


def _disk_error(error: OSError) -> ToolFailed:
    return ToolFailed(f"the code cannot be used: {error.strerror or 'disk error'}.")
