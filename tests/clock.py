"""A clock that a test can move on: real time, and as many seconds as the test adds.

What Dodona does meanwhile takes real time, so that a busy machine makes no difference; what it
waits for need not be waited for.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any


class Clock:
    """The time of the loop, and of all modules of Dodona that have imported a clock."""

    def __init__(self) -> None:
        self._ahead = 0.0

    def advance(self, seconds: float) -> None:
        """Let this time pass. What was due until then happens as soon as the loop goes on."""
        self._ahead += seconds

    @contextmanager
    def running(self, loop: asyncio.AbstractEventLoop) -> Iterator[Clock]:
        """Be the clock of this loop and of Dodona until the block ends."""
        replaced = self._replace_clocks()
        loop.time = self._moved(time.monotonic)  # type: ignore[method-assign]
        try:
            yield self
        finally:
            del loop.time  # type: ignore[method-assign]
            for module, name, value in replaced:
                setattr(module, name, value)

    def install(self) -> None:
        """Be the clock of this process and of all its loops."""
        self._replace_clocks()
        now = self._moved(time.monotonic)
        asyncio.BaseEventLoop.time = lambda _: now()  # type: ignore[method-assign]

    def _replace_clocks(self) -> list[tuple[ModuleType, str, Any]]:
        """Replace the clocks that modules of Dodona have imported; what was replaced."""
        clocks = {
            id(clock): self._moved(clock)
            for clock in (time.time, time.monotonic, time.perf_counter)
        }
        replaced = [
            (module, name, value)
            for module_name, module in list(sys.modules.items())
            if module_name.startswith("dodona.")
            for name, value in list(vars(module).items())
            if id(value) in clocks
        ]
        for module, name, value in replaced:
            setattr(module, name, clocks[id(value)])
        return replaced

    def _moved(self, clock: Callable[[], float]) -> Callable[[], float]:
        return lambda: clock() + self._ahead
