"""Waiting for whichever comes first."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.types import Receive

T = TypeVar("T")


async def first_completed(*racers: Coroutine[Any, Any, T]) -> T:
    """What the first to end returned or raised; the others have ended when this returns.

    Of several at once it is the one named first.
    """
    tasks = [asyncio.create_task(racer) for racer in racers]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return next(task for task in tasks if task.done()).result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def wait_disconnect(receive: Receive) -> None:
    """Until the client is gone; its request must have been read."""
    while (await receive())["type"] != "http.disconnect":
        pass
