"""A moment in a run's future that wakes its tree."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dodona.trees.frame import Frame


class Timer:
    __slots__ = ("_frame", "_handle", "_live", "fired")

    def __init__(self, frame: Frame, seconds: float) -> None:
        self.fired = False
        self._live = True
        self._frame = frame
        self._handle = asyncio.get_running_loop().call_later(seconds, self._fire)
        frame.run.timers.add(self)

    def cancel(self) -> None:
        self._handle.cancel()
        self._end()

    def _fire(self) -> None:
        self.fired = True
        self._end()
        self._frame.run.touch()
        self._frame.wake()

    def _end(self) -> None:
        if self._live:
            self._live = False
            self._frame.run.timers.discard(self)
