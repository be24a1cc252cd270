"""Dodona inside of a script or a notebook, without `async`.

    with dodona.open_sync(vault="notes") as app:
        print(app.ask("What do oaks bear?"))

The app runs in an event loop of its own, in a thread. Its methods may be called from any other
thread. Ctrl-C cancels the run of the interrupted call.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, wait
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self, TypeAlias, TypeVar, Unpack

from dodona.core.chunks import AnyChunk, ApprovalChunk
from dodona.core.domain.projects import LOCAL_USER
from dodona.core.errors import Conflict
from dodona.extend.app import NO_APPROVER, Answer, AnswerStream, App, QuestionOptions
from dodona.extend.options import AnyPath, AppOptions, OpenOptions

T = TypeVar("T")

CANCEL_TIMEOUT_SECONDS: Final = 30.0  # for an interrupted call to end

ApproveSync: TypeAlias = Callable[[ApprovalChunk], bool]


class LoopThread:
    """A thread that runs an event loop, until `stop`."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._stopped = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="dodona", daemon=True)
        self._thread.start()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop and return its result. An interrupt cancels it."""
        if threading.get_ident() == self._thread.ident:
            work.close()
            raise RuntimeError("a SyncApp blocks its own event loop here: use dodona.open().")
        if not self._thread.is_alive():
            work.close()
            raise RuntimeError("this app is closed: use it inside of `with`.")
        done: Future[T] = Future()
        tasks: list[asyncio.Task[T]] = []
        self._loop.call_soon_threadsafe(_start, self._loop, work, done, tasks)
        try:
            return done.result()
        except BaseException:  # such as KeyboardInterrupt in this thread
            if not done.done():
                self._loop.call_soon_threadsafe(_cancel, tasks)
                wait([done], CANCEL_TIMEOUT_SECONDS)
            raise

    def stop(self) -> None:
        """End the loop and its thread."""
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._stopped.wait())


def _start(
    loop: asyncio.AbstractEventLoop,
    work: Coroutine[Any, Any, T],
    done: Future[T],
    tasks: list[asyncio.Task[T]],
) -> None:
    def finish(task: asyncio.Task[T]) -> None:
        if task.cancelled():
            done.set_exception(asyncio.CancelledError())
        elif (error := task.exception()) is not None:
            done.set_exception(error)
        else:
            done.set_result(task.result())

    tasks.append(loop.create_task(work))
    tasks[0].add_done_callback(finish)


def _cancel(tasks: list[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()


class SyncStream:
    """The chunks of an answer. Closing it before its end cancels the run."""

    def __init__(self, stream: AnswerStream, thread: LoopThread) -> None:
        self._stream = stream
        self._thread = thread

    @property
    def run_id(self) -> int:
        """The run of the last chunk."""
        return self._stream.run_id

    @property
    def seq(self) -> int:
        """The position of the last chunk."""
        return self._stream.seq

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> AnyChunk:
        chunk = self._thread.call(_next_chunk(self._stream))
        if chunk is None:
            raise StopIteration
        return chunk

    def close(self) -> None:
        """End the stream; cancel the run if it has not ended."""
        self._thread.call(self._stream.aclose())


async def _next_chunk(stream: AnswerStream) -> AnyChunk | None:
    return await anext(stream, None)


class SyncApp:
    """An `App` without `async`, open inside of `with`. `dodona.open_sync` returns it."""

    def __init__(self, options: AppOptions) -> None:
        self._app = App(options)
        self._thread: LoopThread | None = None
        self._close = asyncio.Event()
        self._life: asyncio.Task[None] | None = None

    def __enter__(self) -> Self:
        if self._thread is not None:
            raise RuntimeError("an app can be opened once: call dodona.open_sync() again.")
        self._thread = LoopThread()
        try:
            self._thread.call(self._open())
        except BaseException:
            self._thread.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._thread is not None
        try:
            self._thread.call(self._end())
        finally:
            self._thread.stop()

    def ask(
        self,
        question: str,
        *,
        approve: ApproveSync | None = None,
        **options: Unpack[QuestionOptions],
    ) -> Answer:
        """Ask a question and return the answer. Raises the DodonaError of a failed run.

        `approve` decides about tool calls that need an approval; without it, they are denied.
        """
        stream, user_id = self.stream(question, **options), options.get("user_id", LOCAL_USER)
        try:
            for chunk in stream:
                if isinstance(chunk, ApprovalChunk):
                    approved, note = (approve(chunk), "") if approve else (False, NO_APPROVER)
                    with suppress(Conflict):  # expired, or decided by another client
                        self.decide(
                            *(stream.run_id, chunk.approval),
                            approved=approved, note=note, user_id=user_id,
                        )  # fmt: skip
        finally:
            stream.close()
        return self._open_thread.call(self._app.find_answer(stream.run_id, user_id=user_id))

    def stream(self, question: str, **options: Unpack[QuestionOptions]) -> SyncStream:
        """Ask a question and return the chunks of its answer, as an iterator.

        Iterating raises the DodonaError of a failed run. Leaving the loop early cancels the run.
        """
        return SyncStream(self._app.stream(question, **options), self._open_thread)

    def decide(
        self,
        run_id: int,
        approval: str,
        *,
        approved: bool,
        note: str = "",
        user_id: str = LOCAL_USER,
    ) -> None:
        """Approve or deny a tool call. Raises Conflict if that has been decided before."""
        thread, decide = self._open_thread, self._app.decide
        thread.call(decide(run_id, approval, approved=approved, note=note, user_id=user_id))

    @property
    def _open_thread(self) -> LoopThread:
        if self._thread is None or not self._app.is_open:
            state = "not open" if self._thread is None else "closed"
            raise RuntimeError(f"this app is {state}: use it inside of `with`.")
        return self._thread

    async def _open(self) -> None:
        opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._life = asyncio.get_running_loop().create_task(self._live(opened))
        try:
            await asyncio.wait({self._life, opened}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self._life.cancel()
            await asyncio.wait([self._life])
            raise
        if not opened.done():
            self._life.result()

    async def _live(self, opened: asyncio.Future[None]) -> None:
        """Open and close the app in one task."""
        async with self._app:
            opened.set_result(None)
            await self._close.wait()

    async def _end(self) -> None:
        assert self._life is not None
        self._close.set()
        await self._life


def open_sync(config: AnyPath | None = None, **options: Unpack[OpenOptions]) -> SyncApp:
    """Return an app for programs without `async`. The arguments are those of `dodona.open`."""
    return SyncApp(AppOptions(config=config, **options))
