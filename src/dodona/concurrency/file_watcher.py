"""Watches files and folders in one thread, and reports changes to subscribers.

Named files and folders of a few documents are polled: they are often next to the database, and a
system watch on such a folder would wake this process on every commit. Trees of notes and code are
watched by the system, except for the folders that the process itself writes to: those are polled.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path, PurePath
from time import monotonic
from typing import Final, Protocol, TypeAlias

import watchfiles

from dodona.concurrency.workers import post_to_loop

POLL_SECONDS: Final = 0.5
SETTLE_SECONDS: Final = 0.05  # editors save in several steps; wait until nothing changes this long
STEP_SECONDS: Final = 0.1  # how often the changes that the system reported are collected
# A file may be created in a new folder before the system watches it, so look there once more.
RECHECK_SECONDS: Final = 1.0
# The system drops events when its queue is full, and the library does not report that.
MAX_CHANGES: Final = 10_000

_log = logging.getLogger(__name__)

# Receives changed paths, or None if changes were missed: the watch has ended, and the subscriber
# must watch and scan again.
OnChange: TypeAlias = Callable[[set[PurePath] | None], None]
PathFilter: TypeAlias = Callable[[PurePath], bool]
_Stamp: TypeAlias = tuple[int, int, int] | None  # time, size and inode of a file
_FOLDER: Final = -1  # instead of the time, which changes with the content


class _Watch(Protocol):
    due: float

    def check(self) -> None: ...
    def close(self) -> None: ...


class FileWatcher:
    """One thread for any number of watches; it runs while there are any.

    `excluded` are the folders whose files this process writes all the time.
    """

    def __init__(self, excluded: Iterable[Path] = ()) -> None:
        self._excluded = tuple(folder.resolve() for folder in excluded)
        self._watches: list[_Watch] = []
        self._thread: threading.Thread | None = None
        self._logged_errors: set[str] = set()
        self._lock = threading.Lock()
        self._wake = threading.Event()

    @asynccontextmanager
    async def watch_files(
        self,
        paths: Callable[[], Iterable[Path]],
        reload: Callable[[], Awaitable[None]],
        *,
        suffixes: tuple[str, ...] = (".toml",),
    ) -> AsyncGenerator[None]:
        """Call `reload` before the block begins and after each change to the files, until it ends.

        Each of `paths` is a file, or a folder of files with these suffixes. It may contain `*` as
        a component, as in `packs/*/rules`, and need not exist yet.
        """
        loop = asyncio.get_running_loop()
        changed, is_stopping = asyncio.Event(), False

        async def run_reload() -> None:
            try:
                await reload()
            except Exception:  # noqa: BLE001 - task root: the next change may succeed
                _log.exception("changed files could not be reloaded")

        async def reload_on_change() -> None:
            while await changed.wait() and not is_stopping:
                changed.clear()
                await run_reload()

        watch = _PolledFiles(paths, suffixes, lambda: post_to_loop(loop, changed.set))
        await asyncio.to_thread(watch.check)  # before the first reload: no change is missed
        await run_reload()
        self._add(watch)
        # No task group: it would wrap exceptions of the block in an exception group.
        task = asyncio.create_task(reload_on_change())
        try:
            yield
        finally:
            is_stopping = True
            changed.set()
            await asyncio.to_thread(self.remove, watch)
            await task

    def watch_tree(
        self, roots: Sequence[Path], on_change: OnChange, path_filter: PathFilter
    ) -> TreeWatch:
        """Report changes below these folders until `remove`. Raises if they cannot be watched.

        `on_change` is called in the watcher's thread, so it must return at once. `path_filter`
        gets paths relative to their root and says which ones matter.
        """
        watch = TreeWatch(roots, on_change, path_filter, self._excluded)
        self._add(watch)
        return watch

    def remove(self, watch: _Watch) -> None:
        """End a watch; nothing is reported after that. Blocks."""
        with self._lock:  # so no check is in progress
            self._watches.remove(watch)
            watch.close()
        self._wake.set()

    def _add(self, watch: _Watch) -> None:
        with self._lock:
            self._watches.append(watch)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(
                    target=self._run, name="dodona-file-watcher", daemon=True
                )
                self._thread.start()
        self._wake.set()

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._watches:
                    self._thread = None
                    return
                for watch in self._watches:
                    if watch.due <= monotonic():
                        self._check(watch)
                next_due = min(watch.due for watch in self._watches)
            self._wake.wait(min(max(next_due - monotonic(), 0.0), POLL_SECONDS))
            self._wake.clear()

    def _check(self, watch: _Watch) -> None:
        try:
            watch.check()
        except Exception as error:  # noqa: BLE001 - task root: one watch must not end the others
            watch.due = monotonic() + POLL_SECONDS
            if repr(error) not in self._logged_errors:  # it may fail again twice a second
                self._logged_errors.add(repr(error))
                _log.exception("a file watch failed")


class _PolledFiles:
    """Files that are compared by their stamps; a change is reported when they have settled."""

    def __init__(
        self,
        paths: Callable[[], Iterable[Path]],
        suffixes: tuple[str, ...],
        on_change: Callable[[], None],
    ) -> None:
        self.due = 0.0
        self._paths = paths
        self._suffixes = suffixes
        self._on_change = on_change
        self._last: dict[Path, _Stamp] | None = None
        self._reported: dict[Path, _Stamp] | None = None

    def check(self) -> None:
        stamps = {path: _stamp(path) for path in self._files()}
        is_settled = stamps == self._last
        if self._reported is None:
            self._reported = stamps
        elif is_settled and stamps != self._reported:
            self._reported = stamps
            self._on_change()
        self._last = stamps
        self.due = monotonic() + (POLL_SECONDS if stamps == self._reported else SETTLE_SECONDS)

    def close(self) -> None:
        """Nothing is open between checks."""

    def _files(self) -> Iterator[Path]:
        for pattern in self._paths():
            for path in _expand_wildcards(pattern):
                yield from list_files([path], self._suffixes) if path.is_dir() else [path]


class TreeWatch:
    """Folders with all that is below them."""

    def __init__(
        self,
        roots: Sequence[Path],
        on_change: OnChange,
        path_filter: PathFilter,
        excluded: Sequence[Path],
    ) -> None:
        self.due = 0.0
        self._roots = roots
        self._on_change = on_change
        self._path_filter = path_filter
        self._inodes = _inodes(roots)
        self._new_folders: dict[PurePath, float] = {}  # with the time of their second check
        self._poll_due = 0.0
        self._listings, watched = _split_folders(roots, excluded)
        self._watched = {str(folder) for folder in watched}
        self._system_changes = watchfiles.watch(
            *watched,
            watch_filter=None,
            debounce=1,
            step=1,
            rust_timeout=1,
            yield_on_timeout=True,
            raise_interrupt=False,
        )
        self._report(next(self._system_changes))  # the watch is active when this returns

    def check(self) -> None:
        now = monotonic()
        self.due = now + STEP_SECONDS
        try:
            changes = next(self._system_changes)
            if now >= self._poll_due:
                self._poll_due = now + POLL_SECONDS
                changes |= self._poll()
        # watchfiles reports errors and limits of the system as a RuntimeError.
        except (OSError, RuntimeError) as error:
            self._end(str(error))
            return
        gone = {name for change, name in changes if change == watchfiles.Change.deleted}
        if gone & self._watched:  # a new folder of that name is not watched
            self._end("a folder was removed")
        elif len(changes) >= MAX_CHANGES:
            self._end(f"{len(changes):,} changes at once")
        else:
            self._report(changes)

    def close(self) -> None:
        self._system_changes.close()

    def _end(self, reason: str) -> None:
        _log.info("watching starts again: %s", reason)
        self.close()
        self.due = float("inf")
        self._on_change(None)

    def _report(self, changes: set[tuple[watchfiles.Change, str]]) -> None:
        now = monotonic()
        paths = {path for path, due in self._new_folders.items() if due <= now}
        for path in paths:
            del self._new_folders[path]
        for change, name in changes:
            path = PurePath(name)
            if self._is_relevant(path):
                paths.add(path)
                if change == watchfiles.Change.added and os.path.isdir(name):
                    self._new_folders[path] = now + RECHECK_SECONDS
        if paths:
            self._on_change(paths)

    def _poll(self) -> set[tuple[watchfiles.Change, str]]:
        """Return the changes in the polled folders. Raises OSError if a folder came or went."""
        if _inodes(self._roots) != self._inodes:
            raise FileNotFoundError("a folder was replaced")
        changes: set[tuple[watchfiles.Change, str]] = set()
        for folder, before in self._listings.items():
            after = self._listings[folder] = _list_folder(folder)
            changed = before.items() ^ after.items()
            if any(_is_folder(stamp) for _, stamp in changed):
                raise FileNotFoundError("there are other folders now")
            changes |= {(watchfiles.Change.modified, str(folder / name)) for name, _ in changed}
        return changes

    def _is_relevant(self, path: PurePath) -> bool:
        for root in self._roots:
            if path.is_relative_to(root):
                return self._path_filter(path.relative_to(root))
        return False


def list_files(folders: Iterable[Path], suffixes: tuple[str, ...] = (".toml",)) -> list[Path]:
    """List the files with these suffixes in some folders, sorted by name per folder.

    A folder may contain `*` as a component, and need not exist. Blocking.
    """
    files: list[Path] = []
    for folder in folders:
        for each in _expand_wildcards(folder):
            with suppress(OSError):
                files += sorted(p for p in each.iterdir() if p.suffix in suffixes and p.is_file())
    return files


def _expand_wildcards(path: Path) -> list[Path]:
    parts = path.parts
    first = next((index for index, name in enumerate(parts) if "*" in name), len(parts))
    with suppress(OSError):
        rest = parts[first:]
        return sorted(Path(*parts[:first]).glob(str(Path(*rest)))) if rest else [path]
    return []


def _split_folders(
    roots: Sequence[Path], excluded: Sequence[Path]
) -> tuple[dict[Path, dict[str, _Stamp]], list[Path]]:
    """Return the listings of the folders to poll, and the folders to watch."""
    polled: dict[Path, dict[str, _Stamp]] = {}
    watched: list[Path] = []
    folders = list(roots)
    while folders:
        folder = folders.pop()
        if any(each.is_relative_to(folder) for each in excluded):
            polled[folder] = listing = _list_folder(folder)
            folders += [folder / name for name, stamp in listing.items() if _is_folder(stamp)]
        else:
            watched.append(folder)
    return polled, watched


def _list_folder(folder: Path) -> dict[str, _Stamp]:
    """Return the files and subfolders of a folder with their stamps."""
    entries: dict[str, _Stamp] = {}
    with os.scandir(folder) as listing:
        for entry in listing:
            if entry.is_dir(follow_symlinks=False):
                entries[entry.name] = (_FOLDER, 0, entry.inode())
            elif (stamp := _stamp(entry.path)) is not None:
                entries[entry.name] = stamp
    return entries


def _is_folder(stamp: _Stamp) -> bool:
    return stamp is not None and stamp[0] == _FOLDER


def _stamp(path: str | Path) -> _Stamp:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return (status.st_mtime_ns, status.st_size, status.st_ino)


def _inodes(roots: Sequence[Path]) -> list[int]:
    return [os.stat(root).st_ino for root in roots]
