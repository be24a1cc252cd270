"""Watches folders: a thread waits for changes and passes them to a callback.

The system limits how many folders can be watched. Where watching fails, the owner scans the folders
before each use instead, and the watcher tries again later.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path, PurePath
from time import monotonic
from typing import Final, TypeAlias

import watchfiles

from dodona.core.errors import DodonaError

SETTLE_MS: Final = 100  # quiet time before changes are reported
POLL_MS: Final = 1_000  # how often the stop flag is checked
RETRY_SECONDS: Final = 30.0
# Wait this many times the duration of the last update: a build changes files for minutes.
COOLDOWN_FACTOR: Final = 5.0

_log = logging.getLogger(__name__)

OnChange: TypeAlias = Callable[[Sequence[PurePath] | None, threading.Event], None]
PathFilter: TypeAlias = Callable[[PurePath], bool]


class FolderWatcher:
    """Watches folders until it is closed.

    `on_change` is called in the watcher's thread with the changed paths below the roots, or with
    None to rescan everything; it should return when the event is set. `path_filter` gets paths
    relative to their root and says which ones matter. `label` names the folders in the log.
    """

    def __init__(
        self, roots: Sequence[Path], on_change: OnChange, *, path_filter: PathFilter, label: str
    ) -> None:
        self._roots = roots
        self._on_change = on_change
        self._path_filter = path_filter
        self._label = label
        self._stop = threading.Event()
        self._up_to_date = threading.Event()
        self._has_warned = False
        name = f"dodona-follow-{label}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def is_up_to_date(self) -> bool:
        """Whether all changes have been processed, except those of the last moment."""
        return self._up_to_date.is_set()

    def close(self) -> None:
        """Stop the thread and wait for it."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._watch()
            # watchfiles reports system limits as a RuntimeError.
            except (OSError, RuntimeError, DodonaError) as error:
                if not self._stop.is_set():
                    self._warn(error)
                self._stop.wait(RETRY_SECONDS)
            finally:
                self._up_to_date.clear()

    def _watch(self) -> None:
        """Watch until stopped, or until a root folder is replaced."""
        inodes = _inodes(self._roots)
        changes = watchfiles.watch(
            *self._roots,
            watch_filter=lambda _, path: self._is_relevant(path),
            stop_event=self._stop,
            step=SETTLE_MS,
            debounce=4 * SETTLE_MS,
            rust_timeout=POLL_MS,
            yield_on_timeout=True,
            raise_interrupt=False,
        )
        # The first iteration runs when the watch is active, so no change is missed.
        for changed in changes:
            if changed or not self.is_up_to_date:
                self._apply_changes(path for _, path in changed)
            if _inodes(self._roots) != inodes:
                return

    def _apply_changes(self, changed: Iterable[str]) -> None:
        started = monotonic()
        self._on_change([*map(PurePath, changed)] if self.is_up_to_date else None, self._stop)
        self._up_to_date.set()
        self._stop.wait(COOLDOWN_FACTOR * (monotonic() - started))

    def _is_relevant(self, path: str) -> bool:
        for root in self._roots:
            if PurePath(path).is_relative_to(root):
                return self._path_filter(PurePath(path).relative_to(root))
        return False

    def _warn(self, error: Exception) -> None:
        if not self._has_warned:
            _log.warning("cannot watch the %s; it is scanned before each use instead: %s",
                         self._label, error)  # fmt: skip
        self._has_warned = True


def _inodes(roots: Sequence[Path]) -> list[int]:
    return [os.stat(root).st_ino for root in roots]
