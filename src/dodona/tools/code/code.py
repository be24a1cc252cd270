"""The code of a project: folders with one index, which an agent can search and read.

Before a query, the index is refreshed; while its folders are watched, only reported changes are
indexed. If that takes long, as the first time, it continues in the background and queries use the
index as it is.
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

from msgspec.structs import replace

from dodona.concurrency.file_watcher import FileWatcher
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
from dodona.tools.index_follower import IndexFollower

REFRESH_INTERVAL_SECONDS: Final = 3.0  # how long a refreshed index counts as fresh
REFRESH_TIMEOUT_SECONDS: Final = 3.0  # how long a query waits for a refresh

# Build output changes all the time and is mostly ignored.
_UNWATCHED_FOLDERS: Final = frozenset({"node_modules", "__pycache__", "target", "dist", "build"})

_log = logging.getLogger(__name__)
T = TypeVar("T")


class IndexedCode:
    """The code in the folders `roots`; the index file `path` must be outside of them.

    With a `scorer`, searches are also ranked by meaning. The caller owns the scorer.
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
        self._follower: IndexFollower | None = None
        self._pending_refresh: asyncio.Future[IndexState] | None = None
        self._wait_deadline = 0.0
        self._fresh_until = 0.0
        self._stop = Event()

    async def search(self, query: str, limit: int) -> list[CodeHit]:
        """Return the best chunks for a query."""
        await self._wait_until_fresh()
        return await _run_in_thread(lambda: self._index.search(query, limit))

    async def count_words(self, words: Sequence[str]) -> tuple[int, dict[str, int]]:
        """Return the number of chunks, and for each word how many have it or a longer form."""
        await self._wait_until_fresh()
        return await _run_in_thread(lambda: self._index.count_words(words))

    async def definitions(self, name: str, limit: int) -> list[Definition]:
        """Return exact matches, else matches in other case, else the nearest names."""
        await self._wait_until_fresh()
        return await _run_in_thread(lambda: self._index.definitions(name, limit))

    async def references(self, name: str, limit: int) -> list[Reference]:
        """Return the uses of a name."""
        await self._wait_until_fresh()
        return await _run_in_thread(lambda: self._index.references(name, limit))

    async def repo_map(self, tokens: int, focus: str = "") -> str:
        """Return an overview of the code within a token budget."""
        await self._wait_until_fresh()
        return await _run_in_thread(lambda: self._index.repo_map(tokens, focus))

    async def read(self, path: str, first: int = 1, last: int | None = None) -> CodeText:
        """Return lines of a file as it is now."""
        return await _run_in_thread(lambda: self._index.read(path, first, last))

    async def versions(self, paths: tuple[str, ...]) -> dict[str, str]:
        """Return the current version of each path that exists."""
        return await _run_in_thread(lambda: self._index.versions(paths))

    async def state(self) -> IndexState:
        """Return the state of the index; it is not complete while changes wait to be indexed."""
        state = await _run_in_thread(self._index.state)
        is_behind = self._follower is not None and self._follower.is_behind
        return replace(state, is_complete=False) if is_behind else state

    async def refresh(self, progress: Callable[[IndexProgress], None] | None = None) -> IndexState:
        """Index all changes. `progress` is called in a worker thread.

        Cancelling waits until the current file is done and keeps the work done so far.
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
        """Rebuild the index from scratch."""
        await _run_in_thread(self._index.discard)
        return await self.refresh(progress)

    def watch(self, watcher: FileWatcher) -> None:
        """Index changes as they happen, until `close`."""
        if self._follower is None:
            roots = [folder.root for folder in self._index.folders.all]
            self._follower = IndexFollower(
                watcher, roots, self._index_changes, path_filter=_is_watched_path, label="code"
            )

    @property
    def is_watched(self) -> bool:
        """Whether the folders are watched and all changes are indexed."""
        return self._follower is not None and self._follower.is_up_to_date

    async def close(self) -> None:
        """Stop background work; the work done so far is kept."""
        self._stop.set()
        follower, self._follower = self._follower, None
        if follower is not None:
            await _run_in_thread(follower.close)
        if self._pending_refresh is not None:
            await asyncio.wait({self._pending_refresh})
        await _run_in_thread(self._index.close)

    def _index_changes(self, changed: Sequence[PurePath] | None, stop: Event) -> None:
        if changed is None:
            self._index.refresh(stop=stop)
        else:
            self._index.update(changed, stop)

    async def _wait_until_fresh(self) -> None:
        """Wait until changes are indexed, but only for a short time."""
        follower = self._follower
        if follower is not None and not follower.is_up_to_date:
            await _indexing_workers().submit(follower.catch_up)
        if follower is not None and follower.is_active:
            return
        now = monotonic()
        if self._pending_refresh is None and now > self._fresh_until:
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
            _log.warning("the code index is not up to date: %s", error)


class NoCode:
    """The code of a project without code folders."""

    async def search(self, query: str, limit: int) -> list[CodeHit]:
        return []

    async def count_words(self, words: Sequence[str]) -> tuple[int, dict[str, int]]:
        return 0, {}

    async def definitions(self, name: str, limit: int) -> list[Definition]:
        return []

    async def references(self, name: str, limit: int) -> list[Reference]:
        return []

    async def repo_map(self, tokens: int, focus: str = "") -> str:
        return ""

    async def read(self, path: str, first: int = 1, last: int | None = None) -> CodeText:
        raise ToolRetry("this project has no code folders.", hint="Add one with: dodona index PATH")

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
    """Threads for all code queries, so that a hanging disk blocks nothing else."""
    return WorkerThreads(8, "dodona-code", owner="the code")


@cache
def _indexing_workers() -> WorkerThreads:
    """Threads for indexing, so that queries do not wait for it."""
    return WorkerThreads(4, "dodona-indexing", owner="the code")


async def _run_in_thread(work: Callable[[], T]) -> T:
    """Run `work` in a thread. Disk errors are reported without local paths."""
    try:
        return await _query_workers().submit(work)
    except OSError as error:
        raise _disk_error(error) from error


def _disk_error(error: OSError) -> ToolFailed:
    return ToolFailed(f"the code is unavailable: {error.strerror or 'disk error'}.")
