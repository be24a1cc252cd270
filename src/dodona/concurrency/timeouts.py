"""Timeouts that stop while their task waits for its turn.

async with pausable_timeout(20):
    with paused_timeouts():
        await turn()  # may take any time
    await request()
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar

_active: ContextVar[tuple[asyncio.Timeout, ...]] = ContextVar("active_timeouts", default=())


@asynccontextmanager
async def pausable_timeout(seconds: float) -> AsyncGenerator[asyncio.Timeout]:
    """Limit the time of a block, as `asyncio.timeout` does, apart from paused time in it."""
    async with asyncio.timeout(seconds) as timeout:
        token = _active.set((*_active.get(), timeout))
        try:
            yield timeout
        finally:
            _active.reset(token)


@contextmanager
def paused_timeouts() -> Generator[None]:
    """Stop the clock of every pausable timeout around this block."""
    loop = asyncio.get_running_loop()
    paused = [(each, when) for each in _active.get() if (when := each.when()) is not None]
    started = loop.time()
    for timeout, _ in paused:
        timeout.reschedule(None)
    try:
        yield
    finally:
        for timeout, when in paused:
            timeout.reschedule(when + loop.time() - started)
