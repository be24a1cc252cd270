"""One execution of a step leaf: start, journal, and stop in two phases.

A fenced step is detached from its run: its output and writes are discarded.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from dodona.core.errors import TreeError
from dodona.core.ports.journal import Effect, Journal, StepRecord, StepStart
from dodona.trees.runtime.blackboard import Blackboard, ThreadBoard
from dodona.trees.runtime.leaves import parse_effect
from dodona.trees.runtime.status import FAILURE, SUCCESS, Status

if TYPE_CHECKING:
    from dodona.trees.runtime.frame import Frame
    from dodona.trees.runtime.leaves import Leaf
    from dodona.trees.runtime.program import Place


class Step:
    """An execution of a leaf; passed to leaves that have a parameter `step`."""

    __slots__ = (
        "_board", "_chunks", "_fenced", "_initial_sizes", "_writes", "effect", "frame", "key",
        "leaf", "outcome_unknown", "place", "stopping",
    )  # fmt: skip

    def __init__(self, leaf: Leaf, place: Place, frame: Frame, key_suffix: str = "") -> None:
        run = frame.run
        self.leaf = leaf
        self.place = place
        self.frame = frame
        self.effect = leaf.effect  # of this call
        self.stopping = False  # a leaf in a thread can check this to end early
        # A crash interrupted this step: the leaf must find out the outcome, not repeat the work.
        self.outcome_unknown = False
        self._fenced = False
        self._chunks: list[Any] = []
        self._board: Blackboard = frame.board
        # The idempotency key: the same for the same execution, even after a crash. A step at the
        # start of a reactive sequence is executed on every wake, each time with a new key.
        self.key = place.key(frame) + key_suffix
        if run.journal is not None:
            self._board = board = frame.board.record_writes()
            self._writes = board.writes
            self._initial_sizes = _container_sizes(leaf.writes, frame.board)
            self.key = run.next_execution_key(self.key)
        elif leaf.wants_step:
            self.key = run.next_execution_key(self.key)

    def progress(self) -> None:
        """Signal to the watchdog that this step is alive. Does not cause a tick."""
        if not self._fenced:
            self.frame.run.mark_progress()

    def pause_timers(self) -> AbstractContextManager[None]:
        """Pause the run's timeouts while a step with a separate limit runs."""
        return self.frame.run.pause_timers()

    def emit(self, chunk: Any) -> None:
        """Send a chunk of output immediately."""
        if not self._fenced:
            self.frame.run.call_in_loop(self._deliver, chunk)

    def _deliver(self, chunk: Any) -> None:
        # Check again: the thread may have been abandoned since it sent this.
        if not self._fenced:
            self._chunks.extend(self.frame.run.deliver(chunk, self))

    def begin_or_replay(self, arguments: Mapping[str, Any]) -> Status | None:
        """Begin the step. If the journal has its outcome, apply that and return the status."""
        run, leaf = self.frame.run, self.leaf
        if self._is_blocked():
            return FAILURE  # no step may start, not even in the same tick
        request = ""
        if leaf.effect is not Effect.NONE or leaf.request_of is not None:
            try:
                request = self._prepare_request(arguments)
            except Exception as error:  # noqa: BLE001 - the boundary of a node tick
                # Nothing to journal: the same blackboard fails in the same way.
                return run.fail_node(self.place, self.frame, error)
        return None if run.journal is None else self._begin_in_journal(run.journal, request)

    def _is_blocked(self) -> bool:
        run = self.frame.run
        return run.is_broken or (run.is_halting and not self.frame.is_in_finally())

    def _prepare_request(self, arguments: Mapping[str, Any]) -> str:
        """Determine the effect of this call. Return a description of its request.

        The journal compares requests, so the outcome of one effect is not applied to another.
        """
        leaf, board, run = self.leaf, self.frame.board, self.frame.run
        if leaf.effect_of is not None:
            effect = leaf.effect_of(board, run.host, arguments)
            self.effect = parse_effect(effect, f"leaf '{leaf.name}'")
        if self.effect is not Effect.NONE:
            run.has_effects = True
        if run.journal is None:
            return ""
        if leaf.request_of is not None:
            return leaf.request_of(board, run.host, arguments)
        if self.effect is Effect.NONE:
            return ""
        return _JSON_ENCODER.encode([arguments, {key: board.get(key) for key in leaf.reads}])

    def _begin_in_journal(self, journal: Journal, request: str) -> Status | None:
        leaf = self.leaf
        try:
            record = journal.begin(StepStart(self.key, leaf.name, self.effect, request))
        except Exception as error:  # noqa: BLE001 - without a journal the run must stop
            self.frame.run.crash(error)
            return FAILURE
        if record is None or record.leaf != leaf.name:
            self.frame.run.on_live()
            # The journal may have stopped the run at its end, and the host when the replay ended.
            return FAILURE if self._is_blocked() else None
        if record.outcome_unknown and leaf.wants_step:
            self.outcome_unknown = True
            self.frame.run.on_live()
            return FAILURE if self._is_blocked() else None
        return self._apply_record(record)

    def _apply_record(self, record: StepRecord) -> Status:
        run = self.frame.run
        try:
            self.frame.board.update(record.writes)
        except TreeError as error:
            return run.fail_node(self.place, self.frame, error)
        for chunk in record.chunks:
            run.replay(chunk, self)
        if record.error is not None:
            self.frame.board.set_reserved("_error", dict(record.error))
        return SUCCESS if record.succeeded else FAILURE

    def call(self, arguments: Mapping[str, Any]) -> Any:
        """Call the leaf. Return its result, or its coroutine."""
        leaf = self.leaf
        if leaf.wants_host:
            arguments = {"host": self.frame.run.host, **arguments}
        if leaf.wants_step:
            return leaf.function(self._board, step=self, **arguments)
        return leaf.function(self._board, **arguments)

    def finish(self, status: Status, error: BaseException | None = None) -> Status:
        """Record how the step ended."""
        if error is not None:
            self.frame.run.fail_node(self.place, self.frame, error)
        self._write_record(status, failed=error is not None)
        return status

    def _write_record(self, status: Status, *, failed: bool) -> None:
        self._fenced = True  # later output and writes would not be in the record
        run = self.frame.run
        if run.journal is None or run.is_broken:
            return
        try:
            run.journal.finish(self.key, self._build_record(status, failed=failed))
        except Exception as error:  # noqa: BLE001 - without a journal the run must stop
            run.crash(error)

    def _build_record(self, status: Status, *, failed: bool) -> StepRecord:
        board, writes = self.frame.board, self._writes
        # A list that was changed in place was not assigned, but counts as a write.
        for key, size in self._initial_sizes.items():
            value = board.get(key)
            if key not in writes and type(value) in _CONTAINERS and len(value) != size:
                writes[key] = value
        return StepRecord(
            self.leaf.name,
            status is SUCCESS,
            writes,
            tuple(self._chunks),
            board.get("_error") if failed else None,
        )


_CONTAINERS = (list, dict)
_JSON_ENCODER = json.JSONEncoder(sort_keys=True, default=repr)


def _container_sizes(keys: tuple[str, ...], board: Blackboard) -> Mapping[str, int]:
    """Return the sizes of the containers that a step declares to write."""
    sizes: dict[str, int] = {}
    for key in keys:
        value = board.get(key)
        if type(value) in _CONTAINERS:
            sizes[key] = len(value)
    return sizes


class AsyncStep(Step):
    """A step that keeps running after the tick that started it: an async leaf, in a task."""

    __slots__ = ("_error", "_task", "grace_timer", "started_at", "status")

    def __init__(self, leaf: Leaf, place: Place, frame: Frame) -> None:
        super().__init__(leaf, place, frame)
        self.status: Status | None = None
        self.started_at = frame.run.now()
        self.grace_timer: asyncio.TimerHandle | None = None
        self._error: Exception | None = None  # why the watchdog ended it
        self._task: asyncio.Task[None] | None = None

    def start(self, arguments: Mapping[str, Any]) -> None:
        self.frame.run.on_step_start(self)
        self._task = asyncio.get_running_loop().create_task(
            self._run(arguments), name=self.place.path
        )
        # Also called if the task is cancelled before its first line.
        self._task.add_done_callback(self._on_task_done)

    def stop(self) -> bool:
        """Ask the step to end. Return True once it has."""
        if self.status is not None:
            return True
        if not self.stopping:
            self.stopping = True
            self._interrupt()
            self.frame.run.start_grace_timer(self)
        return False

    def fail(self, error: Exception) -> None:
        """End the step as failed, regardless of its result."""
        self._error = error
        self.stop()

    def force_stop(self) -> bool:
        """Ask again because it did not end in time. Return True if it was abandoned instead."""
        self._interrupt()
        return False

    def _interrupt(self) -> None:
        assert self._task is not None
        self._task.cancel()

    def _must_journal_start(self) -> bool:
        """Return whether the journal must record the start before the leaf is called."""
        return self.effect is not Effect.NONE and self.frame.run.journal is not None

    async def _journal_start(self) -> bool:
        """Wait until the journal has recorded the start. On False the leaf must not be called."""
        run = self.frame.run
        assert run.journal is not None
        try:
            await run.journal.flush()
        except Exception as error:  # noqa: BLE001 - without a journal the run must stop
            run.crash(error)
        return not run.is_broken  # another step may have crashed the run meanwhile

    async def _run(self, arguments: Mapping[str, Any]) -> None:
        if self._must_journal_start() and not await self._journal_start():
            self.status = FAILURE
            return
        try:
            result = await self.call(arguments)
        except asyncio.CancelledError:
            if self.stopping:
                raise
            # Not cancelled by the run: something the leaf waited for was cancelled.
            self._conclude(FAILURE, TreeError("the leaf was cancelled from outside the tree."))
            raise
        except Exception as error:  # noqa: BLE001 - the boundary of a node tick
            self._conclude(FAILURE, error)
        else:
            self._conclude(*interpret_result(result, self.leaf.name, allow_running=False))
        if self.status is not None:
            # The last line of the task, so the woken run sees the step as finished.
            self.frame.run.on_step_end(self)

    def _conclude(self, status: Status, error: BaseException | None) -> None:
        """Set the outcome, unless the tree has stopped the step."""
        if self._error is not None:
            status, error = FAILURE, self._error
        elif self.stopping:
            return
        self.status = self.finish(status, error)

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.frame.run.crash(error)
        if self in self.frame.run.running:
            if self.status is None:
                self._finish_stopped()
            self.frame.run.on_step_end(self)

    def _finish_stopped(self) -> None:
        if self._error is not None:
            self._conclude(FAILURE, None)
            return
        self.status = FAILURE
        # The tree continued without this step, and must do so again after a resume. If the whole
        # run was stopped, nothing continued: then the step counts as never started.
        if not self.frame.run.is_halting:
            self._write_record(FAILURE, failed=False)
        self._fenced = True


class LeafThread(threading.Thread):
    """A thread that runs a leaf. The type distinguishes it from other threads."""


class ThreadStep(AsyncStep):
    """A blocking leaf, in a separate thread. Its writes are applied when it ends, or never."""

    __slots__ = ()

    def start(self, arguments: Mapping[str, Any]) -> None:
        self._board = ThreadBoard(self.frame.board)
        self.frame.run.on_step_start(self)
        if not self._must_journal_start():
            self._launch(arguments)
            return
        loop = asyncio.get_running_loop()
        self._task = loop.create_task(self._launch_after_journal(arguments), name=self.place.path)

    async def _launch_after_journal(self, arguments: Mapping[str, Any]) -> None:
        """Launch the thread after the journal has the start, unless the tree stopped the step."""
        journalled = await self._journal_start()
        if self._fenced:
            return
        if journalled and not self.stopping:
            self._launch(arguments)
            return
        if not journalled:
            self.status = FAILURE
        else:
            self._finish_stopped()
        self.frame.run.on_step_end(self)

    def _launch(self, arguments: Mapping[str, Any]) -> None:
        loop = asyncio.get_running_loop()

        def work() -> None:
            try:
                outcome = interpret_result(
                    self.call(arguments), self.leaf.name, allow_running=False
                )
            except BaseException as error:  # noqa: BLE001 - the boundary of a node tick
                outcome = (FAILURE, error)
            if not self._fenced:
                try:
                    loop.call_soon_threadsafe(self._on_thread_done, *outcome)
                except RuntimeError:
                    return  # the loop is closed, so the outcome is no longer needed

        # A daemon thread instead of a pool: a leaf that never returns blocks nothing else.
        try:
            LeafThread(target=work, name=self.place.path, daemon=True).start()
        except RuntimeError as error:  # the system has no more threads
            self._conclude(FAILURE, error)
            self.frame.run.on_step_end(self)

    def force_stop(self) -> bool:
        """Abandon the thread, which cannot be cancelled, and discard its writes."""
        self._fenced = True
        self._finish_stopped()
        self.frame.run.on_step_end(self)
        return True

    def _interrupt(self) -> None:
        """Do nothing: a thread cannot be interrupted; the leaf can only check `stopping`."""

    def _on_thread_done(self, status: Status, error: BaseException | None) -> None:
        if self._fenced:
            return
        if not self.stopping:
            status, error = self._merge_writes(status, error)
        self._conclude(status, error)
        if self.status is None:
            self._finish_stopped()
        self.frame.run.on_step_end(self)

    def _merge_writes(
        self, status: Status, error: BaseException | None
    ) -> tuple[Status, BaseException | None]:
        self._writes = dict(self._board.own_values())
        try:
            self.frame.board.update(self._writes)
        except TreeError as rejected:
            return FAILURE, rejected
        return status, error


def interpret_result(
    result: Any, leaf: str, *, allow_running: bool = True
) -> tuple[Status, BaseException | None]:
    """Return the status of a leaf's result, and an error if the result is invalid."""
    if result is None or result is True:
        return SUCCESS, None
    if result is False:
        return FAILURE, None
    if isinstance(result, Status) and (allow_running or result is not Status.RUNNING):
        return result, None
    returned = "RUNNING after it had ended" if isinstance(result, Status) else type(result).__name__
    return FAILURE, TreeError(
        f"leaf '{leaf}' returned {returned}.", hint="Return a Status, a bool, or nothing."
    )
