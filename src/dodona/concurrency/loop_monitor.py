"""Reports code that blocks an event loop while it does so.

The loop sets the time of its last turn; a thread reads it. If it is too old, the frames of the
loop's thread show what runs.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager
from time import monotonic
from types import CodeType, FrameType
from typing import Final, TypeAlias

BLOCKED_SECONDS: Final = 0.5  # a block of this length is reported
_CHECK_SECONDS: Final = 0.1
_BEAT_SECONDS: Final = 0.1

# Receives the running code, innermost first. Called once for each block, in the monitor's thread.
OnBlock: TypeAlias = Callable[[tuple[tuple[CodeType, int], ...]], None]


@asynccontextmanager
async def watch_loop(on_block: OnBlock) -> AsyncGenerator[None]:
    """Watch the running loop while the block of code runs."""
    monitor = _LoopMonitor(asyncio.get_running_loop(), threading.get_ident(), on_block)
    monitor.start()
    try:
        yield
    finally:
        monitor.stop()


class _LoopMonitor:
    def __init__(self, loop: asyncio.AbstractEventLoop, thread_id: int, on_block: OnBlock) -> None:
        self._loop = loop
        self._thread_id = thread_id
        self._on_block = on_block
        self._last_turn = monotonic()
        self._timer: asyncio.TimerHandle | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="loop-monitor", daemon=True)

    def start(self) -> None:
        self._beat()
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        if self._timer is not None:
            self._timer.cancel()

    def _beat(self) -> None:
        self._last_turn = monotonic()
        self._timer = self._loop.call_later(_BEAT_SECONDS, self._beat)

    def _watch(self) -> None:
        reported = 0.0
        while not self._stopped.wait(_CHECK_SECONDS):
            last_turn = self._last_turn
            if last_turn == reported or monotonic() - last_turn < BLOCKED_SECONDS + _BEAT_SECONDS:
                continue
            reported = last_turn
            frame = sys._current_frames().get(self._thread_id)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
            self._on_block(tuple(_running_code(frame)))


def _running_code(frame: FrameType | None) -> Iterator[tuple[CodeType, int]]:
    while frame is not None:
        yield frame.f_code, frame.f_lineno
        frame = frame.f_back
