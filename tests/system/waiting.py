"""Waiting for what must come, however loaded the machine is."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

LIMIT: Final = 60.0  # seconds; whoever waits so long waits for nothing
PAUSE: Final = 0.02

T = TypeVar("T")


async def until(holds: Callable[[], object], what: str) -> None:
    """Return as soon as it holds."""
    await until_found(_awaitable(holds), what)


async def until_found(find: Callable[[], Awaitable[T]], what: str) -> T:
    """What is found, as soon as there is something."""
    deadline = time.monotonic() + LIMIT
    while not (found := await find()):
        if time.monotonic() > deadline:
            raise AssertionError(f"this did not come within {LIMIT:g} seconds: {what}")
        await asyncio.sleep(PAUSE)
    return found


def _awaitable(holds: Callable[[], T]) -> Callable[[], Awaitable[T]]:
    async def find() -> T:
        return holds()

    return find
