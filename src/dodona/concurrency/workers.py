"""Threads for work that blocks, at less than the price of an executor's.

A queue and one call into the loop cost about half of what `run_in_executor` does, and a window of
a conversation is read in less time than either takes.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeAlias, TypeVar

from dodona.core.errors import StoreError

T = TypeVar("T")

# Told the result or the error of what nobody waits for any more.
OnOrphaned: TypeAlias = Callable[[Any, BaseException | None], None]

_Task: TypeAlias = tuple[
    Callable[[], Any], "asyncio.Future[Any]", asyncio.AbstractEventLoop, OnOrphaned | None
]


class WorkerThreads:
    """Some threads that take work in the order in which it is given; they work for `whom`."""

    def __init__(self, count: int, name: str, *, owner: str = "the store") -> None:
        self._owner = owner
        self._queue: SimpleQueue[_Task | None] = SimpleQueue()
        self._threads = [
            threading.Thread(target=self._run_loop, name=f"{name}-{number}", daemon=True)
            for number in range(count)
        ]
        self._is_closed = False
        for thread in self._threads:
            thread.start()

    def submit(
        self, work: Callable[[], T], *, on_orphaned: OnOrphaned | None = None
    ) -> asyncio.Future[T]:
        """Who cancels the future stops waiting; the work is done all the same, for `lost`."""
        if self._is_closed:
            raise StoreError(f"{self._owner} is closed.")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._queue.put((work, future, loop, on_orphaned))
        return future

    def close(self) -> None:
        """Finish what was given, then end. Blocks until then."""
        self._is_closed = True
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()

    def _run_loop(self) -> None:
        while (task := self._queue.get()) is not None:
            work, future, loop, lost = task
            result, error = None, None
            try:
                result = work()
            except BaseException as raised:  # noqa: BLE001 - whatever it is, its caller gets it
                error = raised
            post_to_loop(loop, settle_future, future, result, error, lost)
            # Else this frame keeps what was read, and the connection of an error, alive.
            del task, work, future, lost, result, error


def post_to_loop(
    loop: asyncio.AbstractEventLoop, call: Callable[..., None], *arguments: Any
) -> None:
    try:
        loop.call_soon_threadsafe(call, *arguments)
    except RuntimeError:
        return  # the loop is closed: nobody waits any more


def settle_future(
    future: asyncio.Future[Any],
    result: Any,
    error: BaseException | None,
    on_orphaned: OnOrphaned | None,
) -> None:
    if future.done():
        if on_orphaned is not None:
            on_orphaned(result, error)
        return
    if isinstance(error, StopIteration):
        # A future takes no such error, for a coroutine would take it for its end.
        error = RuntimeError("the operation raised StopIteration")
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
