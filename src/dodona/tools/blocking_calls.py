"""Calls of sync functions, each in a daemon thread of its own.

A function that never returns then blocks nothing else: no pool runs out of workers, and the process
can end.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from dodona.concurrency.workers import post_to_loop, settle_future
from dodona.core.errors import ToolFailed

MAX_THREADS: Final = 64  # of the process

_running: Final[set[_CallThread]] = set()
_lock = threading.Lock()


async def call_in_thread(function: Callable[[], Any], *, tool: str) -> Any:
    """Call a function in a new thread and return its result.

    If the task is cancelled, the thread is abandoned and its result discarded. Raises ToolFailed
    while MAX_THREADS calls have not ended.
    """
    thread = _CallThread(function, tool)
    with _lock:
        if len(_running) >= MAX_THREADS:
            raise _too_many_threads_error(tool)
        _running.add(thread)
    try:
        thread.start()
    except RuntimeError:
        _running.discard(thread)
        raise ToolFailed(f"{tool} was not called: the system has no more threads.") from None
    try:
        return await thread.result
    finally:
        thread.is_abandoned = thread.result.cancelled()


class _CallThread(threading.Thread):
    """One call. It has the context variables of the task that started it."""

    def __init__(self, function: Callable[[], Any], tool: str) -> None:
        super().__init__(name=f"tool {tool}", daemon=True)
        self.tool = tool
        self.is_abandoned = False
        self._loop = asyncio.get_running_loop()
        self.result: asyncio.Future[Any] = self._loop.create_future()
        self._function = function
        self._variables = contextvars.copy_context()

    def run(self) -> None:
        result, error = None, None
        try:
            result = self._variables.run(self._function)
        except BaseException as raised:  # noqa: BLE001 - the boundary of a tool call
            error = raised
        finally:
            _running.discard(self)
        post_to_loop(self._loop, settle_future, self.result, result, error, None)


def _too_many_threads_error(tool: str) -> ToolFailed:
    threads = [*_running]  # a copy, because threads remove themselves
    counts = Counter(each.tool for each in threads)
    hanging = Counter(each.tool for each in threads if each.is_abandoned)
    return ToolFailed(
        f"{tool} was not called: {MAX_THREADS} calls in threads have not ended: {_format(counts)}.",
        hint=f"Calls that hang, past their timeout: {_format(hanging)}."
        if hanging
        else "Call it again when some have ended.",
    )


def _format(counts: Counter[str]) -> str:
    return ", ".join(f"{name} ({count})" for name, count in counts.most_common())
