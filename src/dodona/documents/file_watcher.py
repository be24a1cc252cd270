"""Folders of TOML files that are followed: what is saved is read within a second.

A folder may have `*` for one of its names, as in `packs/*/rules`, and need not exist yet.
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

SETTLE_MS: Final = 50  # editors save in several steps: this is how long all must rest
POLL_MS: Final = 500
RETRY_SECONDS: Final = 5.0
SUFFIX: Final = ".toml"

_log = logging.getLogger(__name__)


def list_files(folders: Iterable[Path]) -> list[Path]:
    """The files of these folders that there are now, folder by folder, by name. It blocks."""
    found: list[Path] = []
    for folder in folders:
        for each in _expand_wildcards(folder):
            with suppress(OSError):
                found += sorted(p for p in each.iterdir() if p.suffix == SUFFIX and p.is_file())
    return found


@asynccontextmanager
async def watch_folders(
    folders: Iterable[Path], reload: Callable[[], None], *, suffixes: tuple[str, ...] = (SUFFIX,)
) -> AsyncGenerator[None]:
    """Until the block ends, call `reload` in a thread whenever files of these folders change.

    It is called once before the block begins: what was saved before is not missed.
    """
    follower = _DocumentWatcher(tuple(folder.absolute() for folder in folders), reload, suffixes)
    # No task group: it would wrap what the block raises.
    task = asyncio.create_task(follower.run())
    task.add_done_callback(lambda _: follower.ready.set())
    await follower.ready.wait()
    try:
        yield
    finally:
        follower.stop.set()
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
        """Watch until told to stop; anew whenever a folder has come or gone."""
        while not self.stop.is_set():
            try:
                await self._reload_and_watch(await asyncio.to_thread(self._folders_to_watch))
            # watchfiles says in a RuntimeError what the system does not allow; a folder may go
            # just before it is watched, or be somebody else's.
            except (OSError, RuntimeError) as error:
                await self._run_reload()
                await self._wait_before_retry(error)

    async def _reload_and_watch(self, watched: set[Path]) -> None:
        # This runs when the watch stands, and so misses nothing that was saved before.
        catch_up = asyncio.create_task(self._run_reload())
        try:
            await self._watch(watched)
        finally:
            await catch_up

    async def _run_reload(self) -> None:
        # One after the other: the last to end must be the last to have looked.
        try:
            async with self._reload_lock:
                await asyncio.to_thread(self._reload)
        except Exception:  # noqa: BLE001 - a boundary, the root of a task: the next file may do
            _log.exception("changed files could not be read")
        self.ready.set()

    async def _watch(self, watched: set[Path]) -> None:
        changes = watchfiles.awatch(  # pyright: ignore[reportUnknownMemberType]
            *watched,
            stop_event=self.stop,
            recursive=False,
            step=SETTLE_MS,
            debounce=4 * SETTLE_MS,
            # A folder that came just before the watch stood is told by nobody: look now and then.
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
        """Look again after a while: that is slower, and works everywhere."""
        if not self._has_warned:
            _log.warning("folders cannot be watched, and are read every %g seconds: %s",
                         RETRY_SECONDS, error)  # fmt: skip
        self._has_warned = True
        with suppress(TimeoutError):
            await asyncio.wait_for(self.stop.wait(), RETRY_SECONDS)

    def _folders_to_watch(self) -> set[Path]:
        return {place for folder in self._folders for place in _watch_targets(folder)}

    def _is_relevant(self, path: Path) -> bool:
        """Is it one of the files, or a folder on the way to them?"""
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
    """The folders in which something may happen that concerns this one.

    Those that hold files, those on the way to them, and what holds the first: a deployment
    replaces it whole. Of what does not exist yet, the closest that does.
    """
    fixed, rest = _split(folder)
    yield next((place for place in fixed.parents if place.is_dir()), fixed)
    level = [fixed] if fixed.is_dir() else []
    yield from level
    for name in rest:
        level = [below for each in level for below in each.glob(name) if below.is_dir()]
        yield from level


def _split(folder: Path) -> tuple[Path, tuple[str, ...]]:
    """What stands before the first `*`, and the names from there on."""
    parts = folder.parts
    first = next((place for place, name in enumerate(parts) if "*" in name), len(parts))
    return Path(*parts[:first]), parts[first:]


def _matches_pattern(path: Path, folder: Path, *, is_full_match: bool = False) -> bool:
    names, patterns = path.parts, folder.parts
    is_as_long = len(names) == len(patterns) if is_full_match else len(names) <= len(patterns)
    return is_as_long and all(map(fnmatchcase, names, patterns))
