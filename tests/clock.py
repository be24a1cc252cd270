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


class Clock:
    """The time of the loop, and of all modules of Dodona that have imported a clock."""

    def __init__(self) -> None:
        self._ahead = 0.0

    def advance(self, seconds: float) -> None:
        """Let this time pass. What was due until then happens as soon as the loop goes on."""
        self._ahead += seconds

    @contextmanager
    def running(self, loop: asyncio.AbstractEventLoop) -> Iterator[Clock]:
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
        loop.time = self._moved(time.monotonic)  # type: ignore[method-assign]
        try:
            yield self
        finally:
            del loop.time  # type: ignore[method-assign]
            for module, name, value in replaced:
                setattr(module, name, value)

    def _moved(self, clock: Callable[[], float]) -> Callable[[], float]:
        return lambda: clock() + self._ahead
