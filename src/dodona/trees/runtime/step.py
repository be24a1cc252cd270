"""One execution of a step leaf: started, journalled, stopped in two phases, or fenced off."""

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
    """What a leaf that asks for a `step` gets beside the blackboard."""

    __slots__ = (
        "_board", "_chunks", "_fenced", "_initial_sizes", "_writes", "effect", "frame", "key", "leaf",
        "outcome_unknown", "place", "stopping",
    )  # fmt: skip

    def __init__(self, leaf: Leaf, place: Place, frame: Frame, key_suffix: str = "") -> None:
        run = frame.run
        self.leaf = leaf
        self.place = place
        self.frame = frame
        self.effect = leaf.effect  # of this call
        self.stopping = False  # a leaf in a thread looks at this to end early
        # A crash cut this very step: the leaf must find out what happened, not repeat it.
        self.outcome_unknown = False
        self._fenced = False
        self._chunks: list[Any] = []
        self._board: Blackboard = frame.board
        # The idempotency key: the same for the same execution, also after a crash. A step in
        # front of a reactive sequence is executed on every wake, and each time is another one.
        self.key = place.key(frame) + key_suffix
        if run.journal is not None:
            self._board = board = frame.board.record_writes()
            self._writes = board.writes
            self._initial_sizes = _container_sizes(leaf.writes, frame.board)
            self.key = run.next_execution_key(self.key)
        elif leaf.wants_step:
            self.key = run.next_execution_key(self.key)

    def progress(self) -> None:
        """Tell the watchdog that this step is alive. Nothing is ticked."""
        if not self._fenced:
            self.frame.run.mark_progress()

    def pause_timers(self) -> AbstractContextManager[None]:
        """Let the run's timeouts stand still: this step has a limit of its own."""
        return self.frame.run.pause_timers()

    def emit(self, chunk: Any) -> None:
        """Send a piece of output on its way, at once."""
        if not self._fenced:
            self.frame.run.call_in_loop(self._deliver, chunk)

    def _deliver(self, chunk: Any) -> None:
        # Again: a thread may have been left behind since it sent this.
        if not self._fenced:
            self._chunks.append(self.frame.run.deliver(chunk))

    def begin_or_replay(self, arguments: Mapping[str, Any]) -> Status | None:
        """The status of this step when the journal has it: it is applied, not run again."""
        run, leaf = self.frame.run, self.leaf
        if self._is_blocked():
            return FAILURE  # nothing starts any more, not even in the same tick
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
        """Settle the effect of this call; returns what is asked for.

        So an effect is not taken for another one's.
        """
        leaf, board, run = self.leaf, self.frame.board, self.frame.run
        if leaf.effect_of is not None:
            said = leaf.effect_of(board, run.host, arguments)
            self.effect = parse_effect(said, f"leaf '{leaf.name}'")
        if self.effect is not Effect.NONE:
            run.has_effects = True
        if run.journal is None:
            return ""  # nobody to tell
        if leaf.request_of is not None:
            return leaf.request_of(board, run.host, arguments)
        if self.effect is Effect.NONE:
            return ""
        return _JSON_ENCODER.encode([arguments, {key: board.get(key) for key in leaf.reads}])

    def _begin_in_journal(self, journal: Journal, request: str) -> Status | None:
        leaf = self.leaf
        try:
            record = journal.begin(StepStart(self.key, leaf.name, self.effect, request))
        except Exception as broken:  # noqa: BLE001 - whatever it is, without a journal we stop
            self.frame.run.crash(broken)
            return FAILURE
        if record is None or record.leaf != leaf.name:
            # Whoever keeps the journal may stop the run where it ends.
            return FAILURE if self._is_blocked() else None
        if record.outcome_unknown and leaf.wants_step:
            self.outcome_unknown = True
            return None
        return self._apply_record(record)

    def _apply_record(self, record: StepRecord) -> Status:
        run = self.frame.run
        try:
            self.frame.board.update(record.writes)
        except TreeError as refused:
            return run.fail_node(self.place, self.frame, refused)
        for chunk in record.chunks:
            run.replay(chunk)
        if record.error is not None:
            self.frame.board.set_reserved("_error", dict(record.error))
        return SUCCESS if record.succeeded else FAILURE

    def call(self, arguments: Mapping[str, Any]) -> Any:
        """Call the leaf: its result, or the coroutine of it."""
        leaf = self.leaf
        if leaf.wants_host:
            arguments = {"host": self.frame.run.host, **arguments}
        if leaf.wants_step:
            return leaf.function(self._board, step=self, **arguments)
        return leaf.function(self._board, **arguments)

    def finish(self, status: Status, error: BaseException | None = None) -> Status:
        """Note how the step ended."""
        if error is not None:
            self.frame.run.fail_node(self.place, self.frame, error)
        self._write_record(status, failed=error is not None)
        return status

    def _write_record(self, status: Status, *, failed: bool) -> None:
        self._fenced = True  # what comes after the record would not be in it
        run = self.frame.run
        if run.journal is None or run.is_broken:
            return
        try:
            run.journal.finish(self.key, self._build_record(status, failed=failed))
        except Exception as broken:  # noqa: BLE001 - whatever it is, without a journal we stop
            run.crash(broken)

    def _build_record(self, status: Status, *, failed: bool) -> StepRecord:
        board, writes = self.frame.board, self._writes
        # A list that was added to in place was not assigned, and is a write all the same.
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
    """How long the containers are that a step says it writes."""
    sizes: dict[str, int] = {}
    for key in keys:
        value = board.get(key)
        if type(value) in _CONTAINERS:
            sizes[key] = len(value)
    return sizes


class AsyncStep(Step):
    """A step that goes on after the tick that started it: an async leaf, in a task."""

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
        # Also when the task is cancelled before its first line.
        self._task.add_done_callback(self._on_task_done)

    def stop(self) -> bool:
        """Ask it to end; True once it has."""
        if self.status is not None:
            return True
        if not self.stopping:
            self.stopping = True
            self._interrupt()
            self.frame.run.start_grace_timer(self)
        return False

    def fail(self, error: Exception) -> None:
        """End it as failed, whatever it would say."""
        self._error = error
        self.stop()

    def force_stop(self) -> bool:
        """It did not end in time: ask again. True when it had to be left behind."""
        self._interrupt()
        return False

    def _interrupt(self) -> None:
        assert self._task is not None
        self._task.cancel()

    def _must_journal_start(self) -> bool:
        """Does the journal have to know of the start before the leaf is called?"""
        return self.effect is not Effect.NONE and self.frame.run.journal is not None

    async def _journal_start(self) -> bool:
        """Wait until the journal has the start of an effect; False: it must not happen."""
        run = self.frame.run
        assert run.journal is not None
        try:
            await run.journal.flush()
        except Exception as broken:  # noqa: BLE001 - whatever it is, without a journal we stop
            run.crash(broken)
        return not run.is_broken  # perhaps another step broke it meanwhile

    async def _run(self, arguments: Mapping[str, Any]) -> None:
        if self._must_journal_start() and not await self._journal_start():
            self.status = FAILURE
            return
        try:
            result = await self.call(arguments)
        except asyncio.CancelledError:
            if self.stopping:
                raise
            # Not by us: something the leaf waited for was cancelled under it.
            self._conclude(FAILURE, TreeError("the leaf was cancelled from outside the tree."))
            raise
        except Exception as error:  # noqa: BLE001 - the boundary of a node tick
            self._conclude(FAILURE, error)
        else:
            self._conclude(*interpret_result(result, self.leaf.name, allow_running=False))
        if self.status is not None:
            # The task ends with this line: whoever is woken finds it done.
            self.frame.run.on_step_end(self)

    def _conclude(self, status: Status, error: BaseException | None) -> None:
        """Settle the outcome, unless the tree stopped waiting for one."""
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
        # The tree went on without it, and must do so again after a resume. When the whole run
        # was stopped, nothing went on: then it is as if the step had never begun.
        if not self.frame.run.is_halting:
            self._write_record(FAILURE, failed=False)
        self._fenced = True


class LeafThread(threading.Thread):
    """A thread that a leaf works in, told from all others by its type."""


class ThreadStep(AsyncStep):
    """A leaf that blocks, in a thread of its own. Its writes count when it has ended, or never."""

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
        """Launch the thread once the journal knows, unless the tree stopped waiting for it."""
        noted = await self._journal_start()
        if self._fenced:
            return
        if noted and not self.stopping:
            self._launch(arguments)
            return
        if not noted:
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
                    return  # the loop is closed: nobody waits for this any more

        # A daemon thread of its own, not a pool's: one that never returns blocks nobody.
        try:
            LeafThread(target=work, name=self.place.path, daemon=True).start()
        except RuntimeError as error:  # no more threads to be had
            self._conclude(FAILURE, error)
            self.frame.run.on_step_end(self)

    def force_stop(self) -> bool:
        """A thread cannot be cancelled: leave it behind, unable to write."""
        self._fenced = True
        self._finish_stopped()
        self.frame.run.on_step_end(self)
        return True

    def _interrupt(self) -> None:
        """There is no interrupting a thread; `stopping` is all it can be told."""

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
        except TreeError as refused:
            return FAILURE, refused
        return status, error


def interpret_result(
    result: Any, leaf: str, *, allow_running: bool = True
) -> tuple[Status, BaseException | None]:
    """The status that a leaf's result stands for, and the error when it stands for none."""
    if result is None or result is True:
        return SUCCESS, None
    if result is False:
        return FAILURE, None
    if isinstance(result, Status) and (allow_running or result is not Status.RUNNING):
        return result, None
    what = "RUNNING after it had ended" if isinstance(result, Status) else type(result).__name__
    return FAILURE, TreeError(
        f"leaf '{leaf}' returned {what}.", hint="Return a Status, a bool, or nothing."
    )
