"""An event loop in which time passes only when everyone waits: a test of an hour takes no time."""

from __future__ import annotations

import asyncio
import selectors
from typing import Any


class _Impatient(selectors.DefaultSelector):  # pyright: ignore[reportUntypedBaseClass]
    """Where the loop would sleep until its next timer, time jumps there instead."""

    def __init__(self) -> None:
        super().__init__()
        self.elapsed = 0.0

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0 if timeout is not None else None)
        if not ready and timeout is not None and timeout > 0:
            self.elapsed += timeout
        return ready


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Timers fire in order and at once. Only for tasks: a thread's time is not ours to bend."""

    def __init__(self) -> None:
        self._impatient = _Impatient()
        super().__init__(self._impatient)

    def time(self) -> float:
        return self._impatient.elapsed
