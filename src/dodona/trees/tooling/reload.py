"""Reloads trees when their files change; a file with errors changes nothing.

A run keeps the tree it started with. With CANCEL_AND_RESTART a run without effects so far is
stopped and restarted with the new tree; a run with effects continues.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager
from enum import Enum
from pathlib import Path
from typing import Any

from dodona.concurrency.file_watcher import FileWatcher
from dodona.core.errors import DodonaError, LoadError, as_text
from dodona.core.events import TREE_RELOAD_FAILED, TREE_RELOADED, Emit, Event, Severity
from dodona.trees.language.loader import load_files
from dodona.trees.language.tree import Tree
from dodona.trees.runtime.registry import Registry
from dodona.trees.runtime.run import SUPERSEDED, Options, Outcome, Run
from dodona.trees.tooling.diff import diff_trees

log = logging.getLogger("dodona.trees")


class ReloadPolicy(Enum):
    """What happens to running trees after a reload."""

    LET_FINISH_THEN_SWAP = "let-finish-then-swap"
    CANCEL_AND_RESTART = "cancel-and-restart"


class Reloader:
    """The current trees of some files; within `watching()` they are reloaded on changes."""

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
        self._trees = self.load(registry)

    def tree(self, name: str | None = None) -> Tree:
        """Return the tree with this name, or the first one."""
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
        """Run the current version of the tree."""
        name = self.tree(name).name
        while True:
            run = Run(self.tree(name), values, options)
            self._runs.add(run)
            try:
                outcome = await run.execute()
            finally:
                self._runs.discard(run)
            # Its :finally may have had an effect: then the run is not repeated.
            if outcome.end_reason != SUPERSEDED or run.has_effects:
                return outcome

    def load(self, registry: Registry) -> Mapping[str, Tree]:
        """Load the files with another registry, for `swap`. Blocks; raises if they do not load."""
        loaded = load_files(self._paths, registry=registry, host_keys=self._host_keys)
        loaded.main_tree()  # raises all problems at once
        return dict(loaded.trees)

    def swap(self, registry: Registry, trees: Mapping[str, Tree]) -> None:
        """Use another registry, and the trees that were loaded with it."""
        self._registry = registry
        self._swap_trees(trees)

    def reload(self) -> bool:
        """Read the files again. Return False if they do not load; the old trees stay in use."""
        try:
            self._swap_trees(self.load(self._registry))
        except DodonaError as error:
            self._report_failure(error)
            return False
        return True

    async def _reload_async(self) -> None:
        """Reload without blocking the event loop."""
        try:
            self._swap_trees(await asyncio.to_thread(self.load, self._registry))
        except DodonaError as error:
            self._report_failure(error)

    def _report_failure(self, error: DodonaError) -> None:
        self._emit_event(TREE_RELOAD_FAILED, Severity.ERROR, error=as_text(error))
        log.warning("reload failed, the old trees stay in use:\n%s", as_text(error))

    def _swap_trees(self, new_trees: Mapping[str, Tree]) -> None:
        old, self._trees = self._trees, new_trees
        changed = {
            name for name in {*old, *new_trees} if _digest(old, name) != _digest(new_trees, name)
        }
        for name in sorted(changed):
            self._report_change(name, old.get(name), new_trees.get(name))
        if self._policy is ReloadPolicy.CANCEL_AND_RESTART:
            self._supersede(changed & new_trees.keys())

    @asynccontextmanager
    async def watching(self, watcher: FileWatcher | None = None) -> AsyncGenerator[Reloader]:
        """Watch the files until the block ends; `watcher` shares its thread with other files."""
        async with (watcher or FileWatcher()).watch_files(lambda: self._paths, self._reload_async):
            yield self

    def _supersede(self, changed: set[str]) -> None:
        for run in tuple(self._runs):
            # Journal records belong to the old tree: a run that has any keeps that tree.
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
