"""Folders that are followed: a thread waits for changes and has them taken in.

Where they cannot be watched (there is a limit to how many folders can), nothing is followed, and
whoever asks looks through the folders first; it is tried again later.
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

SETTLE_MS: Final = 100  # for which nothing must change
TURN_MS: Final = 1_000  # after which it is looked whether to stop
RETRY_SECONDS: Final = 30.0
REST: Final = 5.0  # times what it took to take changes in: a build changes files for minutes

_log = logging.getLogger(__name__)

Take: TypeAlias = Callable[[Sequence[PurePath] | None, threading.Event], None]
Matters: TypeAlias = Callable[[PurePath], bool]


class Follower:
    """Follows until it is closed.

    `take` is called in its thread with what has changed, as paths below the roots, or with None
    to look at everything; it should end when the event is set. `matters` is asked about paths
    relative to their root. `what` names the folders in the log.
    """

    def __init__(self, roots: Sequence[Path], take: Take, *, matters: Matters, what: str) -> None:
        self._roots = roots
        self._take = take
        self._matters = matters
        self._what = what
        self._stop = threading.Event()
        self._is_up = threading.Event()
        self._is_warned = False
        name = f"dodona-follow-{what}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def is_up(self) -> bool:
        """Was every change taken in that is older than a moment?"""
        return self._is_up.is_set()

    def close(self) -> None:
        """End the thread. Blocks until it has."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._watch()
            # watchfiles says in a RuntimeError what the system does not allow.
            except (OSError, RuntimeError, DodonaError) as error:
                if not self._stop.is_set():
                    self._warn(error)
                self._stop.wait(RETRY_SECONDS)
            finally:
                self._is_up.clear()

    def _watch(self) -> None:
        """Until told to stop, or until a folder itself comes or goes."""
        there = _places(self._roots)
        changes = watchfiles.watch(
            *self._roots,
            watch_filter=lambda _, path: self._is_wanted(path),
            stop_event=self._stop,
            step=SETTLE_MS,
            debounce=4 * SETTLE_MS,
            rust_timeout=TURN_MS,
            yield_on_timeout=True,
            raise_interrupt=False,
        )
        # The first turn comes when the watch stands: so nothing is missed in between.
        for changed in changes:
            if changed or not self.is_up:
                self._take_in(path for _, path in changed)
            if _places(self._roots) != there:
                return

    def _take_in(self, changed: Iterable[str]) -> None:
        started = monotonic()
        self._take([*map(PurePath, changed)] if self.is_up else None, self._stop)
        self._is_up.set()
        self._stop.wait(REST * (monotonic() - started))

    def _is_wanted(self, path: str) -> bool:
        for root in self._roots:
            if PurePath(path).is_relative_to(root):
                return self._matters(PurePath(path).relative_to(root))
        return False

    def _warn(self, error: Exception) -> None:
        if not self._is_warned:
            _log.warning("the %s is not followed, but looked through before use: %s",
                         self._what, error)  # fmt: skip
        self._is_warned = True


def _places(roots: Sequence[Path]) -> list[int]:
    return [os.stat(root).st_ino for root in roots]
