"""The index of a project's code: a file that can be deleted and rebuilt at any time."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path, PurePath, PurePosixPath
from threading import Event
from typing import Final, TypeVar

from dodona.core.domain.knowledge.code import CodeHit, CodeText, Definition, IndexState, Reference
from dodona.core.errors import AccessDenied, DodonaError, ToolRetry
from dodona.tools.code.files.folders import (
    CodeFolder,
    CodeFolders,
    is_binary,
    is_ignored,
    read_below,
    text_of,
    version_of,
)
from dodona.tools.code.files.ignore_rules import IGNORE_FILES
from dodona.tools.code.index.definitions import find_definitions, find_references
from dodona.tools.code.index.index_file import DATABASE_FORMAT, get_state
from dodona.tools.code.index.indexing import IndexProgressCallback, IndexRefresh, load_state
from dodona.tools.code.index.repo_map import RepoMap
from dodona.tools.code.index.search import (
    SEMANTIC_RERANK_SIZE,
    count_words,
    find_candidates,
    rerank,
    search,
)
from dodona.tools.code.semantic.search import SemanticScorer
from dodona.tools.line_ranges import select_lines
from dodona.tools.presentation import suggest_path
from dodona.tools.rebuildable_db import RebuildableDatabase, file_lock, snapshot

_LOCK_POLL_SECONDS: Final = 0.5

_log = logging.getLogger(__name__)
T = TypeVar("T")


class CodeIndex:
    """One index file for some folders. Methods block and may be called from any thread."""

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
        """Index changes. If another process is indexing, wait for it or return at once."""
        stop = stop or Event()
        with self._writer_lock(stop, wait_for_lock=wait_for_lock) as is_locked:
            if not is_locked:
                return self._database.run_safely(load_state)

            def run_refresh(db: sqlite3.Connection) -> IndexState:
                return IndexRefresh(self.folders, self._max_bytes, stop, progress).run(db)

            return self._database.run_safely(run_refresh)

    def update(self, paths: Iterable[PurePath], stop: Event) -> None:
        """Index the changes at and below these paths. A changed ignore file affects its folder."""
        scopes: set[tuple[CodeFolder, str]] = set()
        for path in paths:
            affected = path.parent if path.name in IGNORE_FILES else path
            for folder in self.folders.all:
                if affected.is_relative_to(folder.root):
                    relative = affected.relative_to(folder.root).as_posix()
                    scopes.add((folder, "" if relative == "." else relative))

        def run_update(db: sqlite3.Connection) -> None:
            refresh = IndexRefresh(self.folders, self._max_bytes, stop)
            if get_state(db, "complete"):
                refresh.update(db, scopes)
            else:  # a new file, or one that another process has not finished
                refresh.run(db)

        with self._writer_lock(stop, wait_for_lock=True) as is_locked:
            if is_locked:  # else stopped while another process wrote
                self._database.run_safely(run_update)

    def discard(self) -> None:
        """Delete the index file; the next refresh starts from scratch."""
        with self._writer_lock(Event(), wait_for_lock=True):
            self._database.discard()

    def state(self) -> IndexState:
        """Return the state of the index."""
        return self._query(load_state)

    def search(self, query: str, limit: int) -> list[CodeHit]:
        """Return the best chunks by their words and, with a scorer, by meaning."""
        if self._scorer is None:
            return self._query(lambda db: search(db, query, limit))
        hits = self._query(lambda db: find_candidates(db, query, limit))
        texts = [f"{hit.title}\n{hit.text}" for hit in hits[:SEMANTIC_RERANK_SIZE]]
        # Outside of the snapshot: this is slow, and indexing must not wait for it.
        return rerank(hits, self._scorer.similarities(query, texts) if texts else (), limit)

    def count_words(self, words: Sequence[str]) -> tuple[int, dict[str, int]]:
        """Return the number of chunks, and for each word how many have it or a longer form."""
        return self._query(lambda db: count_words(db, words))

    def definitions(self, name: str, limit: int) -> list[Definition]:
        """Return the definitions of a name."""
        return self._query(lambda db: find_definitions(db, name, limit))

    def references(self, name: str, limit: int) -> list[Reference]:
        """Return the uses of a name."""
        max_bytes = self._max_bytes
        return self._query(
            lambda db: find_references(db, self.folders, name, limit=limit, max_bytes=max_bytes)
        )

    def repo_map(self, tokens: int, focus: str) -> str:
        """Return an overview of the code within a token budget."""
        return self._query(lambda db: self._repo_map.render(db, tokens=tokens, focus=focus))

    def read(self, path: str, first: int, last: int | None) -> CodeText:
        """Return lines of a file as it is now. The file must be one that would be indexed."""
        root, parts = self.folders.resolve(path)
        name = "/".join(PurePosixPath(path).parts)
        try:
            if is_ignored(root, parts):
                raise AccessDenied(f"'{name}' is ignored and therefore not indexed.")
            data, stamp = read_below(root, parts, max_bytes=self._max_bytes)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            raise self._missing_file_error(name) from None
        except OSError as error:
            raise AccessDenied(f"'{name}' cannot be read: {error.strerror}.") from error
        if stamp.size > self._max_bytes:
            max_size = f"{self._max_bytes // 1024:,} KB"
            raise ToolRetry(f"'{name}' is larger than {max_size} and therefore not indexed.")
        if is_binary(data):
            raise ToolRetry(f"'{name}' is not text.")
        return _select_lines(name, data, first, last)

    def versions(self, paths: tuple[str, ...]) -> dict[str, str]:
        """Return the current version of each path; missing files are left out."""
        versions: dict[str, str] = {}
        for path in paths:
            try:
                root, parts = self.folders.resolve(path)
                versions[path] = version_of(read_below(root, parts, max_bytes=self._max_bytes)[0])
            except (OSError, DodonaError):
                continue  # removed, or not in a code folder
        return versions

    def close(self) -> None:
        self._database.close()

    def _missing_file_error(self, path: str) -> ToolRetry:
        """Return the error for a missing file, with a suggestion."""
        rows = self._query(lambda db: db.execute("SELECT path FROM files ORDER BY path").fetchall())
        paths = [row[0] for row in rows]
        hint = suggest_path(path, paths, otherwise="Use search_code to find it.")
        return ToolRetry(f"there is no file '{path}'.", hint=hint)

    def _query(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run a query on one consistent state of the index."""

        def run_in_snapshot(db: sqlite3.Connection) -> T:
            with snapshot(db):
                return work(db)

        return self._database.run_safely(run_in_snapshot)

    @contextmanager
    def _writer_lock(self, stop: Event, *, wait_for_lock: bool) -> Generator[bool]:
        """Yield whether we hold the lock for changing the index, across all processes."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        lock_path = self._path.with_name(f"{self._path.name}.taking")
        with ExitStack() as stack:
            is_locked = False
            while not is_locked:
                try:
                    stack.enter_context(
                        file_lock(lock_path, timeout=_LOCK_POLL_SECONDS if wait_for_lock else 0.0)
                    )
                    is_locked = True
                except BlockingIOError:
                    if not wait_for_lock or stop.is_set():
                        break
            yield is_locked


def _select_lines(name: str, data: bytes, first: int, last: int | None) -> CodeText:
    lines = text_of(data).split("\n")
    if lines[-1] == "" and len(lines) > 1:
        lines.pop()
    lines = [line.removesuffix("\r") for line in lines]
    found = select_lines(name, lines, first=first, last=last)
    return CodeText(name, found.first, found.last, found.text, found.count, version_of(data))
