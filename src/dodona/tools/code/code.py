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
from dodona.tools.code.files.folders import Folders
from dodona.tools.code.files.ignore_rules import FILES
from dodona.tools.code.index.index import Index
from dodona.tools.code.semantic.search import Meaning
from dodona.tools.following import Follower

FRESH_SECONDS: Final = 3.0  # for which the folders are not looked at again
PATIENCE: Final = 3.0  # seconds that a question waits for the index

# Whatever is built changes all the time, and is mostly ignored.
_PASSED_OVER: Final = frozenset({"node_modules", "__pycache__", "target", "dist", "build"})

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
        meaning: Meaning | None = None,
    ) -> None:
        self._index = Index(Folders(roots), path, max_bytes=max_file_kb * 1024, meaning=meaning)
        self._follower: Follower | None = None
        self._catching_up: asyncio.Future[IndexState] | None = None
        self._patient_until = 0.0
        self._fresh_until = 0.0
        self._stop = Event()

    async def search(self, query: str, limit: int) -> list[CodeHit]:
        await self._ready()
        return await _in_thread(lambda: self._index.search(query, limit))

    async def definitions(self, name: str, limit: int) -> list[Definition]:
        """Those of the name; else of one in another case; else of the nearest names there are."""
        await self._ready()
        return await _in_thread(lambda: self._index.definitions(name, limit))

    async def references(self, name: str, limit: int) -> list[Reference]:
        await self._ready()
        return await _in_thread(lambda: self._index.references(name, limit))

    async def repo_map(self, tokens: int, focus: str = "") -> str:
        await self._ready()
        return await _in_thread(lambda: self._index.repo_map(tokens, focus))

    async def read(self, path: str, first: int = 1, last: int | None = None) -> CodeText:
        return await _in_thread(lambda: self._index.read(path, first, last))

    async def versions(self, paths: tuple[str, ...]) -> dict[str, str]:
        return await _in_thread(lambda: self._index.versions(paths))

    async def state(self) -> IndexState:
        return await _in_thread(self._index.state)

    async def refresh(self, progress: Callable[[IndexProgress], None] | None = None) -> IndexState:
        """Take in all that has changed. `progress` is called in a thread.

        Whoever cancels it waits until the file in hand is done; what was taken in stays.
        """
        stop = Event()
        work = _indexing().submit(lambda: self._index.refresh(progress, stop=stop))
        try:
            state = await asyncio.shield(work)
        except asyncio.CancelledError:
            stop.set()
            await asyncio.wait({work})
            raise
        except OSError as error:
            raise _unusable(error) from error
        self._fresh_until = monotonic() + FRESH_SECONDS
        return state

    async def rebuild(self, progress: Callable[[IndexProgress], None] | None = None) -> IndexState:
        """Make the index from nothing."""
        await _in_thread(self._index.throw_away)
        return await self.refresh(progress)

    async def follow(self) -> None:
        """Follow the folders until it is closed."""
        if self._follower is None:
            roots = [folder.root for folder in self._index.folders.all]
            self._follower = Follower(
                roots,
                lambda _, stop: self._take_in(stop),
                matters=_matters,
                what="code",
            )

    @property
    def is_followed(self) -> bool:
        return self._follower is not None and self._follower.is_up

    async def close(self) -> None:
        """Stop what goes on, and keep what it has done."""
        self._stop.set()
        if self._follower is not None:
            await _in_thread(self._follower.close)
        if self._catching_up is not None:
            await asyncio.wait({self._catching_up})
        await _in_thread(self._index.close)

    def _take_in(self, stop: Event) -> None:
        self._index.refresh(stop=stop)

    async def _ready(self) -> None:
        """Wait for an index that knows the files as they are, but not for long."""
        now = monotonic()
        if self._catching_up is None and now > self._fresh_until and not self.is_followed:
            work = _indexing().submit(lambda: self._index.refresh(stop=self._stop, waits=False))
            work.add_done_callback(self._caught_up)
            self._catching_up = work
            self._patient_until = now + PATIENCE
        if self._catching_up is not None:
            await asyncio.wait({self._catching_up}, timeout=max(self._patient_until - now, 0.0))

    def _caught_up(self, done: asyncio.Future[IndexState]) -> None:
        self._catching_up = None
        self._fresh_until = monotonic() + FRESH_SECONDS
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
        return _NOTHING

    async def state(self) -> IndexState:
        return _NOTHING


_NOTHING: Final = IndexState(0, 0, 0, 0, 0, 0, 0, 0, 0.0)


def _matters(path: PurePath) -> bool:
    return not any(
        part in _PASSED_OVER or (part.startswith(".") and part not in FILES) for part in path.parts
    )


@cache
def _threads() -> WorkerThreads:
    """For all questions about code; a disk that hangs blocks none but these."""
    return WorkerThreads(8, "dodona-code", whom="the code")


@cache
def _indexing() -> WorkerThreads:
    """For what takes long, so that questions never wait for it."""
    return WorkerThreads(4, "dodona-indexing", whom="the code")


async def _in_thread(work: Callable[[], T]) -> T:
    """What the work returns; an error of the disk is told without the paths of this machine."""
    try:
        return await _threads().submit(work)
    except OSError as error:
        raise _unusable(error) from error


def _unusable(error: OSError) -> ToolFailed:
    return ToolFailed(f"the code cannot be used: {error.strerror or 'disk error'}.")
