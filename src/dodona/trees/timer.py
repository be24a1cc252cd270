"""A moment in a run's future that wakes its tree."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dodona.trees.run import Run


class Timer:
    __slots__ = ("_handle", "_live", "_run", "fired")

    def __init__(self, run: Run, seconds: float) -> None:
        self.fired = False
        self._live = True
        self._run = run
        self._handle = asyncio.get_running_loop().call_later(seconds, self._fire)
        run.timers += 1

    def cancel(self) -> None:
        self._handle.cancel()
        self._end()

    def _fire(self) -> None:
        self.fired = True
        self._end()
        self._run.touch()
        self._run.wake()

    def _end(self) -> None:
        if self._live:
            self._live = False
            self._run.timers -= 1
