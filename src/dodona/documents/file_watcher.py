"""Watch folders of TOML files, and reload them within a second of a change.

A folder may contain `*` as a path component, as in `packs/*/rules`, and need not exist yet.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

import watchfiles

SETTLE_MS: Final = 50  # editors save in several steps; wait until no file changes for this long
POLL_MS: Final = 500
RETRY_SECONDS: Final = 5.0
SUFFIX: Final = ".toml"

_log = logging.getLogger(__name__)


def list_files(folders: Iterable[Path]) -> list[Path]:
    """List the TOML files that currently exist in these folders, sorted by name per folder.

    Blocking.
    """
    files: list[Path] = []
    for folder in folders:
        for each in _expand_wildcards(folder):
            with suppress(OSError):
                files += sorted(p for p in each.iterdir() if p.suffix == SUFFIX and p.is_file())
    return files


@asynccontextmanager
async def watch_folders(
    folders: Iterable[Path], reload: Callable[[], None], *, suffixes: tuple[str, ...] = (SUFFIX,)
) -> AsyncGenerator[None]:
    """Call `reload` in a thread whenever files in these folders change, until the block ends.

    It is also called once before the block begins, so that earlier changes are not missed.
    """
    watcher = _DocumentWatcher(tuple(folder.absolute() for folder in folders), reload, suffixes)
    # No task group: it would wrap exceptions of the block in an exception group.
    task = asyncio.create_task(watcher.run())
    task.add_done_callback(lambda _: watcher.ready.set())
    await watcher.ready.wait()
    try:
        yield
    finally:
        watcher.stop.set()
        await task


class _DocumentWatcher:
    def __init__(
        self, folders: Sequence[Path], reload: Callable[[], None], suffixes: tuple[str, ...]
    ) -> None:
        self.stop, self.ready = asyncio.Event(), asyncio.Event()
        self._folders = folders
        self._reload = reload
        self._suffixes = suffixes
        self._has_warned = False
        self._reload_lock = asyncio.Lock()

    async def run(self) -> None:
        """Watch until `stop` is set; restart whenever a folder appears or disappears."""
        while not self.stop.is_set():
            try:
                await self._reload_and_watch(await asyncio.to_thread(self._folders_to_watch))
            # watchfiles raises RuntimeError when the system refuses a watch. A folder may also
            # disappear just before it is watched, or be unreadable.
            except (OSError, RuntimeError) as error:
                await self._run_reload()
                await self._wait_before_retry(error)

    async def _reload_and_watch(self, watched: set[Path]) -> None:
        # The reload runs once the watch is active, so a change in between is not missed.
        catch_up = asyncio.create_task(self._run_reload())
        try:
            await self._watch(watched)
        finally:
            await catch_up

    async def _run_reload(self) -> None:
        # One at a time: the reload that finishes last must have read the latest files.
        try:
            async with self._reload_lock:
                await asyncio.to_thread(self._reload)
        except Exception:  # noqa: BLE001 - task root: the next change may succeed
            _log.exception("changed files could not be reloaded")
        self.ready.set()

    async def _watch(self, watched: set[Path]) -> None:
        changes = watchfiles.awatch(  # pyright: ignore[reportUnknownMemberType]
            *watched,
            stop_event=self.stop,
            recursive=False,
            step=SETTLE_MS,
            debounce=4 * SETTLE_MS,
            # A folder created just before the watch was active causes no event, so poll too.
            rust_timeout=POLL_MS,
            yield_on_timeout=True,
            watch_filter=lambda _, path: self._is_relevant(Path(path)),
        )
        async with aclosing(changes):
            async for changed in changes:
                if changed:
                    await self._run_reload()
                if await asyncio.to_thread(self._folders_to_watch) != watched:
                    return

    async def _wait_before_retry(self, error: Exception) -> None:
        """Fall back to polling: slower, but it works on every file system."""
        if not self._has_warned:
            _log.warning("folders cannot be watched, so they are read every %g seconds: %s",
                         RETRY_SECONDS, error)  # fmt: skip
        self._has_warned = True
        with suppress(TimeoutError):
            await asyncio.wait_for(self.stop.wait(), RETRY_SECONDS)

    def _folders_to_watch(self) -> set[Path]:
        return {target for folder in self._folders for target in _watch_targets(folder)}

    def _is_relevant(self, path: Path) -> bool:
        """Return whether the path is one of the files, or a folder above them."""
        return any(
            _matches_pattern(path, folder)
            or (
                path.suffix in self._suffixes
                and _matches_pattern(path.parent, folder, is_full_match=True)
            )
            for folder in self._folders
        )


def _expand_wildcards(folder: Path) -> list[Path]:
    fixed, rest = _split(folder)
    with suppress(OSError):
        return sorted(fixed.glob(str(Path(*rest)))) if rest else [fixed]
    return []


def _watch_targets(folder: Path) -> Iterator[Path]:
    """Yield the existing folders to watch for changes to this one.

    These are the folders with files, those between them and the fixed part of the path, and the
    parent of the fixed part, because a deployment may replace that folder as a whole. For a
    folder that does not exist yet, it is the closest parent that does.
    """
    fixed, rest = _split(folder)
    yield next((parent for parent in fixed.parents if parent.is_dir()), fixed)
    level = [fixed] if fixed.is_dir() else []
    yield from level
    for name in rest:
        level = [below for each in level for below in each.glob(name) if below.is_dir()]
        yield from level


def _split(folder: Path) -> tuple[Path, tuple[str, ...]]:
    """Split a path into the part before the first `*` and the remaining names."""
    parts = folder.parts
    first = next((index for index, name in enumerate(parts) if "*" in name), len(parts))
    return Path(*parts[:first]), parts[first:]


def _matches_pattern(path: Path, folder: Path, *, is_full_match: bool = False) -> bool:
    names, patterns = path.parts, folder.parts
    length_fits = len(names) == len(patterns) if is_full_match else len(names) <= len(patterns)
    return length_fits and all(map(fnmatchcase, names, patterns))
