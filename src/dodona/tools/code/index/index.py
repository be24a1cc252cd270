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
from dodona.tools.code.files.folders import CodeFolders, is_ignored
from dodona.tools.code.index.definitions import find_definitions
from dodona.tools.code.index.index_file import DATABASE_FORMAT
from dodona.tools.code.index.indexing import IndexProgressCallback, IndexRefresh, load_state
from dodona.tools.code.index.references import find_references
from dodona.tools.code.index.repo_map import RepoMap
from dodona.tools.code.index.search import SEMANTIC_RERANK_SIZE, find_candidates, rerank, search
from dodona.tools.code.semantic.search import SemanticScorer
from dodona.tools.rebuildable_db import RebuildableDatabase, file_lock, snapshot

MAX_READ_LINES: Final = 2_000  # of a file that are read at once
MAX_COMPARED_PATHS: Final = 2_000  # paths that a wrong one is compared with

_LOCK_POLL_SECONDS: Final = 0.5

_log = logging.getLogger(__name__)
T = TypeVar("T")


class CodeIndex:
    """One file for some folders. Its methods block, and may be called from any thread."""

    def __init__(
        self,
        folders: CodeFolders,
        path: Path,
        *,
        max_bytes: int,
        scorer: SemanticScorer | None = None,
    ) -> None:
        self.folders = folders
        self._path = path
        self._max_bytes = max_bytes
        self._database = RebuildableDatabase(path, DATABASE_FORMAT)
        self._repo_map = RepoMap()
        self._scorer = scorer

    def refresh(
        self,
        progress: IndexProgressCallback | None = None,
        *,
        stop: Event | None = None,
        wait_for_lock: bool = True,
    ) -> IndexState:
        """Take in what has changed. While another does so, wait for it, or leave it to them."""
        stop = stop or Event()
        with (
            _wrap_database_errors(),
            self._writer_lock(stop, wait_for_lock=wait_for_lock) as is_ours,
        ):
            if not is_ours:
                return self._run(load_state)

            def take(db: sqlite3.Connection) -> IndexState:
                return IndexRefresh(self.folders, self._max_bytes, stop, progress).run(db)

            return self._run(take)

    def discard(self) -> None:
        """The next refresh begins from nothing."""
        with _wrap_database_errors(), self._writer_lock(Event(), wait_for_lock=True):
            self._database.discard()

    def state(self) -> IndexState:
        return self._query(load_state)

    def search(self, query: str, limit: int) -> list[CodeHit]:
        """The best pieces by their words; with `meaning`, by that as well."""
        if self._scorer is None:
            return self._query(lambda db: search(db, query, limit))
        hits = self._query(lambda db: find_candidates(db, query, limit))
        texts = [f"{hit.title}\n{hit.text}" for hit in hits[:SEMANTIC_RERANK_SIZE]]
        # Outside of the snapshot: it takes long, and what is taken in meanwhile need not wait.
        return rerank(hits, self._scorer.similarities(query, texts) if texts else (), limit)

    def definitions(self, name: str, limit: int) -> list[Definition]:
        return self._query(lambda db: find_definitions(db, name, limit))

    def references(self, name: str, limit: int) -> list[Reference]:
        most = self._max_bytes
        return self._query(
            lambda db: find_references(db, self.folders, name, limit=limit, max_bytes=most)
        )

    def repo_map(self, tokens: int, focus: str) -> str:
        return self._query(lambda db: self._repo_map.render(db, tokens=tokens, focus=focus))

    def read(self, path: str, first: int, last: int | None) -> CodeText:
        """Some lines of a file as it is now. It must be one that would be indexed."""
        root, parts = self.folders.resolve(path)
        name = "/".join(PurePosixPath(path).parts)
        try:
            if is_ignored(root, parts):
                raise AccessDenied(f"'{name}' is ignored, and so no part of the code.")
            data, stamp = read_below(root, parts, max_bytes=self._max_bytes)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            raise self._missing_file_error(name) from None
        except OSError as error:
            raise AccessDenied(f"'{name}' cannot be read: {error.strerror}.") from error
        if stamp.size > self._max_bytes:
            most = f"{self._max_bytes // 1024:,} KB"
            raise ToolRetry(f"'{name}' is larger than {most}, and so no part of the code.")
        if is_binary(data):
            raise ToolRetry(f"'{name}' is not text.")
        return _select_lines(name, data, first, last)

    def versions(self, paths: tuple[str, ...]) -> dict[str, str]:
        found: dict[str, str] = {}
        for path in paths:
            try:
                root, parts = self.folders.resolve(path)
                found[path] = version_of(read_below(root, parts, max_bytes=self._max_bytes)[0])
            except (OSError, DodonaError):
                continue  # gone, or never ours
        return found

    def close(self) -> None:
        self._database.close()

    def _missing_file_error(self, path: str) -> ToolRetry:
        """A file that is not there, with the one that may be meant."""
        rows = self._query(lambda db: db.execute("SELECT path FROM files ORDER BY path").fetchall())
        paths = [row[0] for row in rows]
        name = PurePosixPath(path).name.casefold()
        same = [known for known in paths if PurePosixPath(known).name.casefold() == name]
        near = (
            f"Did you mean '{same[0]}'?" if same else did_you_mean(path, paths[:MAX_COMPARED_PATHS])
        )
        return ToolRetry(f"there is no file '{path}'.", hint=near or "Search the code for it.")

    def _query(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """An answer from one state of the index, whatever is taken in meanwhile."""

        def ask(db: sqlite3.Connection) -> T:
            with snapshot(db):
                return work(db)

        with _wrap_database_errors():
            return self._run(ask)

    def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return self._database.run(work)

    @contextmanager
    def _writer_lock(self, stop: Event, *, wait_for_lock: bool) -> Generator[bool]:
        """Are we the only ones, in all processes, who change the index?"""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        place = self._path.with_name(f"{self._path.name}.taking")
        with ExitStack() as stack:
            is_ours = False
            while not is_ours:
                try:
                    stack.enter_context(
                        file_lock(place, timeout=_LOCK_POLL_SECONDS if wait_for_lock else 0.0)
                    )
                    is_ours = True
                except BlockingIOError:
                    if not wait_for_lock or stop.is_set():
                        break
            yield is_ours


@contextmanager
def _wrap_database_errors() -> Generator[None]:
    """An error of the database, without its words: they may name paths of this machine."""
    try:
        yield
    except sqlite3.Error as error:
        _log.error("the index of the code cannot be used: %s", error)
        raise ToolFailed(
            "the index of the code cannot be used at the moment.", hint="Try again later."
        ) from error


def _select_lines(name: str, data: bytes, first: int, last: int | None) -> CodeText:
    lines = text_of(data).split("\n")
    if lines[-1] == "" and len(lines) > 1:
        lines.pop()
    if not 1 <= first <= len(lines):
        raise ToolRetry(f"'{name}' has lines 1 to {len(lines)}, and no line {first}.")
    end = min(len(lines) if last is None else last, len(lines), first + MAX_READ_LINES - 1)
    if end < first:
        raise ToolRetry(f"the last line ({last}) comes before the first ({first}).")
    text = "\n".join(line.removesuffix("\r") for line in lines[first - 1 : end])
    return CodeText(name, first, end, text, len(lines), version_of(data))
