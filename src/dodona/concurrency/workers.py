"""Worker threads for blocking calls, cheaper than an executor.

A queue and one call into the loop cost about half of `run_in_executor`. Reading a conversation's
window takes less time than either.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeAlias, TypeVar

from dodona.core.errors import StoreError

T = TypeVar("T")

# Receives the result or the error of work whose caller no longer waits.
OnOrphaned: TypeAlias = Callable[[Any, BaseException | None], None]

_Task: TypeAlias = tuple[
    Callable[[], Any], "asyncio.Future[Any]", asyncio.AbstractEventLoop, OnOrphaned | None
]


class WorkerThreads:
    """Threads that run work in the order of submission; `owner` names their user in errors."""

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
        """Run work in a thread. Cancelling the future does not stop it: `on_orphaned` is called."""
        if self._is_closed:
            raise StoreError(f"{self._owner} is closed.")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._queue.put((work, future, loop, on_orphaned))
        return future

    def close(self) -> None:
        """Finish all submitted work, then stop the threads. Blocks until then."""
        self._is_closed = True
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()

    def _run_loop(self) -> None:
        while (task := self._queue.get()) is not None:
            work, future, loop, on_orphaned = task
            result, error = None, None
            try:
                result = work()
            except BaseException as raised:  # noqa: BLE001 - every error belongs to the caller
                error = raised
            post_to_loop(loop, settle_future, future, result, error, on_orphaned)
            # Otherwise this frame keeps the result, and the connection of an error, alive.
            del task, work, future, on_orphaned, result, error


def post_to_loop(
    loop: asyncio.AbstractEventLoop, call: Callable[..., None], *arguments: Any
) -> None:
    """Schedule a call in a loop from another thread; do nothing if the loop is closed."""
    try:
        loop.call_soon_threadsafe(call, *arguments)
    except RuntimeError:
        return  # the loop is closed: no caller waits


def settle_future(
    future: asyncio.Future[Any],
    result: Any,
    error: BaseException | None,
    on_orphaned: OnOrphaned | None,
) -> None:
    """Set the outcome of a future; if it is done already, pass the outcome to `on_orphaned`."""
    if future.done():
        if on_orphaned is not None:
            on_orphaned(result, error)
        return
    if isinstance(error, StopIteration):
        # A future rejects StopIteration, because it would end the awaiting coroutine.
        error = RuntimeError("the operation raised StopIteration")
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
