"""Trees that follow their files: a saved file takes effect, a bad one changes nothing.

A run keeps the tree it began with. With CANCEL_AND_RESTART a run that has had no effect yet is
stopped and begun again with the new tree; one that has is left alone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from enum import Enum
from pathlib import Path
from typing import Any

import watchfiles

from dodona.core.errors import DodonaError, LoadError, as_text
from dodona.core.events import TREE_RELOAD_FAILED, TREE_RELOADED, Emit, Event, Severity
from dodona.trees.language.loader import load_files
from dodona.trees.language.tree import Tree
from dodona.trees.runtime.registry import Registry
from dodona.trees.runtime.run import SUPERSEDED, Options, Outcome, Run
from dodona.trees.tooling.diff import diff_trees

log = logging.getLogger("dodona.trees")

# Editors save in several steps; this is how long a file must rest before it is read.
SETTLE_MS = 50
RETRY_SECONDS = 5.0  # after which files are read that cannot be watched


class ReloadPolicy(Enum):
    LET_FINISH_THEN_SWAP = "let-finish-then-swap"
    CANCEL_AND_RESTART = "cancel-and-restart"


class Reloader:
    """The trees of some files, as they are now; within `following()` they follow the files."""

    def __init__(
        self,
        paths: Iterable[Path],
        *,
        registry: Registry,
        policy: ReloadPolicy = ReloadPolicy.LET_FINISH_THEN_SWAP,
        emit: Emit | None = None,
        host_keys: Iterable[str] = (),
    ) -> None:
        self._paths = tuple(Path(path).absolute() for path in paths)
        self._registry = registry
        self._policy = policy
        self._emit = emit
        self._host_keys = tuple(host_keys)
        self._runs: set[Run] = set()
        self._has_warned = False
        self._trees = self._load()

    def tree(self, name: str | None = None) -> Tree:
        """The tree of this name, or the first one."""
        if name is None:
            return next(iter(self._trees.values()))
        try:
            return self._trees[name]
        except KeyError:
            raise LoadError(f'there is no tree "{name}".') from None

    async def run(
        self,
        name: str | None = None,
        values: Mapping[str, Any] | None = None,
        options: Options | None = None,
    ) -> Outcome:
        """Run the tree as it is now."""
        name = self.tree(name).name
        while True:
            run = Run(self.tree(name), values, options)
            self._runs.add(run)
            try:
                outcome = await run.execute()
            finally:
                self._runs.discard(run)
            # Its :finally may have had an effect after all: then it is not done twice.
            if outcome.end_reason != SUPERSEDED or run.has_effects:
                return outcome

    def reload(self) -> bool:
        """Read the files again; False when they do not load and the old trees stay."""
        try:
            self._swap_trees(self._load())
        except DodonaError as error:
            self._report_failure(error)
            return False
        return True

    async def _reload_async(self) -> None:
        """The same, without making the runs wait for the disk."""
        try:
            self._swap_trees(await asyncio.to_thread(self._load))
        except DodonaError as error:
            self._report_failure(error)

    def _report_failure(self, error: DodonaError) -> None:
        self._emit_event(TREE_RELOAD_FAILED, Severity.ERROR, error=as_text(error))
        log.warning("the trees stay as they were:\n%s", as_text(error))

    def _swap_trees(self, new_trees: dict[str, Tree]) -> None:
        old, self._trees = self._trees, new_trees
        changed = {
            name for name in {*old, *new_trees} if _digest(old, name) != _digest(new_trees, name)
        }
        for name in sorted(changed):
            self._report_change(name, old.get(name), new_trees.get(name))
        if self._policy is ReloadPolicy.CANCEL_AND_RESTART:
            self._supersede(changed & new_trees.keys())

    @asynccontextmanager
    async def watching(self) -> AsyncGenerator[Reloader]:
        """Follow the files until the block ends."""
        # No task group: it would wrap what the block raises.
        stop, ready = asyncio.Event(), asyncio.Event()
        following = asyncio.create_task(self._watch_files(stop, ready))
        following.add_done_callback(lambda _: ready.set())
        await ready.wait()
        try:
            yield self
        finally:
            stop.set()
            await following

    async def _watch_files(self, stop: asyncio.Event, ready: asyncio.Event) -> None:
        """Watch until told to stop; anew whenever a folder has come or gone."""
        # The folders, not the files: an editor that saves by renaming makes a new file. And what
        # holds the folders: a deployment replaces them whole.
        folders = {path.parent for path in self._paths}
        around = {*folders, *(folder.parent for folder in folders)}
        while not stop.is_set():
            there = await asyncio.to_thread(_existing_folders, around)
            if not there:
                await asyncio.sleep(1)
                continue
            # This runs when the watch stands, and so misses nothing that was saved before.
            catch_up = asyncio.create_task(self._reload_async())
            catch_up.add_done_callback(lambda _: ready.set())
            try:
                await self._watch_folders(there, folders, stop)
            # watchfiles says in a RuntimeError what the system does not allow.
            except (OSError, RuntimeError) as error:
                await self._wait_to_retry(error, stop)
            await catch_up

    async def _wait_to_retry(self, error: Exception, stop: asyncio.Event) -> None:
        """Look again after a while: that is slower, and works everywhere."""
        if not self._has_warned:
            log.warning("the trees cannot be watched, and are read every %g seconds: %s",
                        RETRY_SECONDS, error)  # fmt: skip
        self._has_warned = True
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), RETRY_SECONDS)

    async def _watch_folders(
        self, existing: set[Path], folders: set[Path], stop: asyncio.Event
    ) -> None:
        """Reload on every change of the files; return when the folders themselves change."""
        concerned = {*self._paths, *folders}
        changes = watchfiles.awatch(  # pyright: ignore[reportUnknownMemberType]
            *existing,
            stop_event=stop,
            recursive=False,
            step=SETTLE_MS,
            debounce=4 * SETTLE_MS,
            watch_filter=lambda _, path: Path(path) in concerned,
        )
        async with aclosing(changes):
            async for changed in changes:
                await self._reload_async()
                if any(Path(path) in folders for _, path in changed):
                    return

    def _load(self) -> dict[str, Tree]:
        loaded = load_files(self._paths, registry=self._registry, host_keys=self._host_keys)
        loaded.main_tree()  # raises every mistake at once
        return dict(loaded.trees)

    def _supersede(self, changed: set[str]) -> None:
        for run in tuple(self._runs):
            # What a journal holds is the old tree's: a run that has used it goes on with that.
            journalled = run.journal is not None and bool(run.execution_counts)
            if run.tree.name in changed and not run.has_effects and not journalled:
                run.cancel(SUPERSEDED)

    def _report_change(self, name: str, old: Tree | None, new: Tree | None) -> None:
        if old is None or new is None:
            lines = [f"{'+' if old is None else '-'} tree {name}"]
        else:
            lines = diff_trees(old, new)
        self._emit_event(TREE_RELOADED, Severity.INFO, tree=name, diff=lines)
        log.info("tree %s reloaded:\n%s", name, "\n".join(lines))

    def _emit_event(self, kind: str, severity: Severity, **payload: Any) -> None:
        if self._emit is not None:
            self._emit(Event(kind, "trees.reload", severity, payload))


def _digest(trees: Mapping[str, Tree], name: str) -> str | None:
    return trees[name].digest if name in trees else None


def _existing_folders(folders: set[Path]) -> set[Path]:
    return {folder for folder in folders if folder.is_dir()}
