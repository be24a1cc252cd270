"""The index of a project's code: a file that can be thrown away and made anew at any time."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path, PurePosixPath
from threading import Event
from typing import Final, TypeVar

from dodona.core.domain.knowledge.code import CodeHit, CodeText, Definition, IndexState, Reference
from dodona.core.errors import AccessDenied, DodonaError, ToolFailed, ToolRetry, did_you_mean
from dodona.tools.code.files.files import is_binary, read_below, text_of, version_of
from dodona.tools.code.files.folders import Folders, is_ignored
from dodona.tools.code.index.definitions import definitions
from dodona.tools.code.index.index_file import KIND
from dodona.tools.code.index.indexing import Look, Progress, kept_state
from dodona.tools.code.index.references import references
from dodona.tools.code.index.repo_map import RepoMap
from dodona.tools.code.index.search import COMPARED, candidates, reordered, search
from dodona.tools.code.semantic.search import Meaning
from dodona.tools.rebuildable_db import Throwaway, file_lock, snapshot

MOST_LINES: Final = 2_000  # of a file that are read at once
MOST_COMPARED: Final = 2_000  # paths that a wrong one is compared with

_TURN_SECONDS: Final = 0.5

_log = logging.getLogger(__name__)
T = TypeVar("T")


class Index:
    """One file for some folders. Its methods block, and may be called from any thread."""

    def __init__(
        self, folders: Folders, path: Path, *, max_bytes: int, meaning: Meaning | None = None
    ) -> None:
        self.folders = folders
        self._path = path
        self._max_bytes = max_bytes
        self._file = Throwaway(path, KIND)
        self._map = RepoMap()
        self._meaning = meaning

    def refresh(
        self, progress: Progress | None = None, *, stop: Event | None = None, waits: bool = True
    ) -> IndexState:
        """Take in what has changed. While another does so, wait for it, or leave it to them."""
        stop = stop or Event()
        with _told(), self._alone(stop, waits=waits) as is_ours:
            if not is_ours:
                return self._use(kept_state)

            def take(db: sqlite3.Connection) -> IndexState:
                return Look(self.folders, self._max_bytes, stop, progress).take(db)

            return self._use(take)

    def throw_away(self) -> None:
        """The next refresh begins from nothing."""
        with _told(), self._alone(Event(), waits=True):
            self._file.throw_away()

    def state(self) -> IndexState:
        return self._asked(kept_state)

    def search(self, query: str, limit: int) -> list[CodeHit]:
        """The best pieces by their words; with `meaning`, by that as well."""
        if self._meaning is None:
            return self._asked(lambda db: search(db, query, limit))
        hits = self._asked(lambda db: candidates(db, query, limit))
        texts = [f"{hit.title}\n{hit.text}" for hit in hits[:COMPARED]]
        # Outside of the snapshot: it takes long, and what is taken in meanwhile need not wait.
        return reordered(hits, self._meaning.closeness(query, texts) if texts else (), limit)

    def definitions(self, name: str, limit: int) -> list[Definition]:
        return self._asked(lambda db: definitions(db, name, limit))

    def references(self, name: str, limit: int) -> list[Reference]:
        most = self._max_bytes
        return self._asked(
            lambda db: references(db, self.folders, name, limit=limit, max_bytes=most)
        )

    def repo_map(self, tokens: int, focus: str) -> str:
        return self._asked(lambda db: self._map.draw(db, tokens=tokens, focus=focus))

    def read(self, path: str, first: int, last: int | None) -> CodeText:
        """Some lines of a file as it is now. It must be one that would be indexed."""
        root, parts = self.folders.find(path)
        name = "/".join(PurePosixPath(path).parts)
        try:
            if is_ignored(root, parts):
                raise AccessDenied(f"'{name}' is ignored, and so no part of the code.")
            data, stamp = read_below(root, parts, most=self._max_bytes)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            raise self._missing(name) from None
        except OSError as error:
            raise AccessDenied(f"'{name}' cannot be read: {error.strerror}.") from error
        if stamp.size > self._max_bytes:
            most = f"{self._max_bytes // 1024:,} KB"
            raise ToolRetry(f"'{name}' is larger than {most}, and so no part of the code.")
        if is_binary(data):
            raise ToolRetry(f"'{name}' is not text.")
        return _lines(name, data, first, last)

    def versions(self, paths: tuple[str, ...]) -> dict[str, str]:
        found: dict[str, str] = {}
        for path in paths:
            try:
                root, parts = self.folders.find(path)
                found[path] = version_of(read_below(root, parts, most=self._max_bytes)[0])
            except (OSError, DodonaError):
                continue  # gone, or never ours
        return found

    def close(self) -> None:
        self._file.close()

    def _missing(self, path: str) -> ToolRetry:
        """A file that is not there, with the one that may be meant."""
        rows = self._asked(lambda db: db.execute("SELECT path FROM files ORDER BY path").fetchall())
        paths = [row[0] for row in rows]
        name = PurePosixPath(path).name.casefold()
        same = [known for known in paths if PurePosixPath(known).name.casefold() == name]
        near = f"Did you mean '{same[0]}'?" if same else did_you_mean(path, paths[:MOST_COMPARED])
        return ToolRetry(f"there is no file '{path}'.", hint=near or "Search the code for it.")

    def _asked(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """An answer from one state of the index, whatever is taken in meanwhile."""

        def ask(db: sqlite3.Connection) -> T:
            with snapshot(db):
                return work(db)

        with _told():
            return self._use(ask)

    def _use(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return self._file.use(work)

    @contextmanager
    def _alone(self, stop: Event, *, waits: bool) -> Generator[bool]:
        """Are we the only ones, in all processes, who change the index?"""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        place = self._path.with_name(f"{self._path.name}.taking")
        with ExitStack() as stack:
            is_ours = False
            while not is_ours:
                try:
                    stack.enter_context(file_lock(place, wait=_TURN_SECONDS if waits else 0.0))
                    is_ours = True
                except BlockingIOError:
                    if not waits or stop.is_set():
                        break
            yield is_ours


@contextmanager
def _told() -> Generator[None]:
    """An error of the database, without its words: they may name paths of this machine."""
    try:
        yield
    except sqlite3.Error as error:
        _log.error("the index of the code cannot be used: %s", error)
        raise ToolFailed(
            "the index of the code cannot be used at the moment.", hint="Try again later."
        ) from error


def _lines(name: str, data: bytes, first: int, last: int | None) -> CodeText:
    lines = text_of(data).split("\n")
    if lines[-1] == "" and len(lines) > 1:
        lines.pop()
    if not 1 <= first <= len(lines):
        raise ToolRetry(f"'{name}' has lines 1 to {len(lines)}, and no line {first}.")
    end = min(len(lines) if last is None else last, len(lines), first + MOST_LINES - 1)
    if end < first:
        raise ToolRetry(f"the last line ({last}) comes before the first ({first}).")
    text = "\n".join(line.removesuffix("\r") for line in lines[first - 1 : end])
    return CodeText(name, first, end, text, len(lines), version_of(data))
