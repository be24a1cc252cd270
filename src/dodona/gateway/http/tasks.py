"""Helpers for racing coroutines."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.types import Receive

T = TypeVar("T")


async def first_completed(*racers: Coroutine[Any, Any, T]) -> T:
    """Return or raise the result of the first coroutine to end, and cancel the others.

    If several end at once, the first argument wins. All have ended when this returns.
    """
    tasks = [asyncio.create_task(racer) for racer in racers]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return next(task for task in tasks if task.done()).result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def wait_for_disconnect(receive: Receive) -> None:
    """Wait until the client disconnects. Its request body must have been read before."""
    while (await receive())["type"] != "http.disconnect":
        pass
