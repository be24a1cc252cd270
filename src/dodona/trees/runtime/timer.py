"""Timers that wake a run."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dodona.trees.runtime.frame import Frame


class Timer:
    """Fires once. While the run's timers are paused, no time passes."""

    __slots__ = ("_frame", "_handle", "_is_active", "_remaining_seconds", "fired")

    def __init__(self, frame: Frame, seconds: float) -> None:
        self.fired = False
        self._is_active = True
        self._frame = frame
        self._remaining_seconds = seconds
        self._handle: asyncio.TimerHandle | None = None
        frame.run.timers.add(self)
        if not frame.run.are_timers_paused:
            self.resume()

    def cancel(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._unregister()

    def pause(self) -> None:
        if self._handle is not None:
            self._remaining_seconds = max(
                0.0, self._handle.when() - asyncio.get_running_loop().time()
            )
            self._handle.cancel()
            self._handle = None

    def resume(self) -> None:
        self._handle = asyncio.get_running_loop().call_later(self._remaining_seconds, self._fire)

    def _fire(self) -> None:
        self.fired = True
        self._unregister()
        self._frame.run.mark_progress()
        self._frame.wake()

    def _unregister(self) -> None:
        if self._is_active:
            self._is_active = False
            self._frame.run.timers.discard(self)
