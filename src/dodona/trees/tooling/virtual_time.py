"""An event loop with virtual time: it advances only while all tasks wait, so tests run fast."""

from __future__ import annotations

import asyncio
import selectors
import threading
from collections.abc import Callable
from concurrent.futures import Executor
from time import monotonic
from typing import Any

from dodona.trees.runtime.step import LeafThread

# The real time that the loop waits for threads before virtual time advances anyway.
THREAD_TIMEOUT_SECONDS = 10.0


class _VirtualTimeSelector(selectors.DefaultSelector):  # pyright: ignore[reportUntypedBaseClass]
    """Advances the time to the next timer instead of sleeping until then."""

    def __init__(self) -> None:
        super().__init__()
        self.elapsed = 0.0
        self.executor_calls = 0  # calls currently running in executors
        self._initial_threads = frozenset(threading.enumerate())
        self._wait_deadline: float | None = None

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None or (timeout > 0 and self._must_wait()):
            return super().select(timeout if timeout is None else 0.005)
        self._wait_deadline = None
        ready = super().select(0)
        if not ready and timeout > 0:
            self.elapsed += timeout
        return ready

    def _must_wait(self) -> bool:
        """Return whether a thread is working, so that real time must pass.

        Only threads of leaves and of the loop's executors count: others, such as the writer
        thread of a store, stay alive while idle.
        """
        if not self.executor_calls and not any(
            map(self._is_new_leaf_thread, threading.enumerate())
        ):
            return False
        if self._wait_deadline is None:
            self._wait_deadline = monotonic() + THREAD_TIMEOUT_SECONDS
        return monotonic() < self._wait_deadline

    def _is_new_leaf_thread(self, thread: threading.Thread) -> bool:
        return isinstance(thread, LeafThread) and thread not in self._initial_threads


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Timers fire in order and without delay, but not while a leaf works in a thread."""

    def __init__(self) -> None:
        self._virtual_selector = _VirtualTimeSelector()
        super().__init__(self._virtual_selector)

    def time(self) -> float:
        return self._virtual_selector.elapsed

    def run_in_executor(
        self, executor: Executor | None, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        self._virtual_selector.executor_calls += 1
        future = super().run_in_executor(executor, func, *args)
        future.add_done_callback(self._on_executor_done)
        return future

    def _on_executor_done(self, future: asyncio.Future[Any]) -> None:
        del future
        self._virtual_selector.executor_calls -= 1
