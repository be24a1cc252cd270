"""A moment in a run's future that wakes its tree."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dodona.trees.runtime.frame import Frame


class Timer:
    """Fires once. While the run rests, the moment moves away with the time."""

    __slots__ = ("_frame", "_handle", "_left", "_live", "fired")

    def __init__(self, frame: Frame, seconds: float) -> None:
        self.fired = False
        self._live = True
        self._frame = frame
        self._left = seconds
        self._handle: asyncio.TimerHandle | None = None
        frame.run.timers.add(self)
        if not frame.run.is_resting:
            self.resume()

    def cancel(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._end()

    def pause(self) -> None:
        if self._handle is not None:
            self._left = max(0.0, self._handle.when() - asyncio.get_running_loop().time())
            self._handle.cancel()
            self._handle = None

    def resume(self) -> None:
        self._handle = asyncio.get_running_loop().call_later(self._left, self._fire)

    def _fire(self) -> None:
        self.fired = True
        self._end()
        self._frame.run.touch()
        self._frame.wake()

    def _end(self) -> None:
        if self._live:
            self._live = False
            self._frame.run.timers.discard(self)
