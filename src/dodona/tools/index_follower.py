"""Keeps an index up to date with its folders: a thread indexes the changes that a watcher reports.

The system limits how many folders can be watched. Where watching fails, the owner scans the folders
before each use instead, and the follower tries again later.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path, PurePath
from time import monotonic
from typing import Final, TypeAlias

from dodona.concurrency.file_watcher import FileWatcher, PathFilter, TreeWatch

RETRY_SECONDS: Final = 30.0
MAX_REST_SECONDS: Final = 0.5  # between updates; a build changes files for minutes
CATCH_UP_SECONDS: Final = 3.0  # how long a reader waits for the changes reported so far

_log = logging.getLogger(__name__)

# Indexes these paths and all that is below them, or everything for None. It should return when the
# event is set.
Update: TypeAlias = Callable[[Sequence[PurePath] | None, threading.Event], None]


class IndexFollower:
    """Follows some folders until it is closed; `label` names them in the log."""

    def __init__(
        self,
        watcher: FileWatcher,
        roots: Sequence[Path],
        update: Update,
        *,
        path_filter: PathFilter,
        label: str,
    ) -> None:
        self._watcher = watcher
        self._roots = roots
        self._update = update
        self._path_filter = path_filter
        self._label = label
        self._stop = threading.Event()
        self._condition = threading.Condition()
        # All of these are guarded by the condition.
        self._waiting: set[PurePath] = set()
        self._waiting_since = 0.0  # when the first of them was reported; 0 for none
        self._updating_since = 0.0  # the same for the changes that are being indexed
        self._is_active = True  # not between a failure and the next attempt
        self._is_scanned = False  # all files were indexed since the watch began
        self._is_watch_lost = False
        self._reported_count = 0
        self._indexed_count = 0
        self._reader_count = 0
        self._has_warned = False
        name = f"dodona-follow-{label}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def is_active(self) -> bool:
        """Whether the folders are followed, or are being watched and scanned for the first time."""
        return self._is_active

    @property
    def is_following(self) -> bool:
        """Whether the folders are watched and were scanned since."""
        return self._is_scanned

    @property
    def is_up_to_date(self) -> bool:
        """Whether all reported changes are indexed."""
        return self._is_scanned and self._indexed_count == self._reported_count

    @property
    def is_behind(self) -> bool:
        """Whether changes have been waiting for longer than a reader waits."""
        since = self._updating_since or self._waiting_since
        return self._is_scanned and since > 0.0 and monotonic() - since > CATCH_UP_SECONDS

    def catch_up(self) -> bool:
        """Wait until the changes reported so far are indexed; return whether they are.

        Each change is waited for `CATCH_UP_SECONDS` after its report, so several readers in a row
        do not wait longer.
        """
        if self.is_up_to_date:
            return True
        with self._condition:
            reported = self._reported_count
            since = self._updating_since or self._waiting_since or monotonic()

            def is_current() -> bool:
                return self._is_scanned and self._indexed_count >= reported

            self._reader_count += 1
            self._condition.notify_all()
            self._condition.wait_for(
                lambda: is_current() or not self._is_active,
                max(since + CATCH_UP_SECONDS - monotonic(), 0.0),
            )
            self._reader_count -= 1
            return is_current()

    def close(self) -> None:
        """Stop the thread and wait for it."""
        self._stop.set()
        with self._condition:
            self._condition.notify_all()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._follow()
            except Exception as error:  # noqa: BLE001 - task root: try again later
                if not self._stop.is_set():
                    self._warn(error)
                self._stop.wait(RETRY_SECONDS)

    def _follow(self) -> None:
        """Scan everything, then index changes, until stopped or changes were missed."""
        with self._condition:
            self._waiting.clear()
            self._waiting_since, self._updating_since = 0.0, monotonic()
            self._indexed_count = self._reported_count  # the scan covers them
            self._is_watch_lost, self._is_active = False, True
        watch: TreeWatch | None = None
        try:
            watch = self._watcher.watch_tree(self._roots, self._on_change, self._path_filter)
            # The watch is active, so no change is missed.
            self._update(None, self._stop)
            with self._condition:
                self._is_scanned = not self._stop.is_set()
                self._updating_since = 0.0
                self._condition.notify_all()
            while (changes := self._wait_for_changes()) is not None:
                paths, reported = changes
                started = monotonic()
                self._update(paths, self._stop)
                self._finish_update(reported, rest=monotonic() - started)
        finally:
            with self._condition:
                self._is_active = self._is_scanned = False
                self._indexed_count = self._reported_count  # the next scan covers them
                self._condition.notify_all()
            if watch is not None:
                self._watcher.remove(watch)

    def _wait_for_changes(self) -> tuple[list[PurePath], int] | None:
        """Return the changed paths and the number of reports so far; None to end the watch."""
        with self._condition:
            self._condition.wait_for(lambda: self._waiting or self._must_end())
            if self._must_end():
                return None
            paths, self._waiting = sorted(self._waiting), set()
            self._updating_since, self._waiting_since = self._waiting_since, 0.0
            return paths, self._reported_count

    def _finish_update(self, reported: int, *, rest: float) -> None:
        """Rest as long as the update took, unless a reader waits."""
        with self._condition:
            self._indexed_count = reported
            self._updating_since = 0.0
            self._condition.notify_all()
            self._condition.wait_for(
                lambda: self._reader_count or self._must_end(), min(rest, MAX_REST_SECONDS)
            )

    def _must_end(self) -> bool:
        return self._is_watch_lost or self._stop.is_set()

    def _on_change(self, paths: set[PurePath] | None) -> None:
        with self._condition:
            self._reported_count += 1
            if paths is None:
                self._is_watch_lost = True
                self._is_scanned = False
            else:
                self._waiting |= paths
                self._waiting_since = self._waiting_since or monotonic()
            self._condition.notify_all()

    def _warn(self, error: Exception) -> None:
        if not self._has_warned:
            _log.warning("cannot watch the %s; it is scanned before each use instead: %s",
                         self._label, error)  # fmt: skip
        self._has_warned = True
