"""One execution of a tree: it ticks when something wakes it, until all its steps have ended."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from dodona.core.errors import DodonaError, TreeError
from dodona.core.events import TREE_ESCALATED, TREE_STUCK, TREE_UNRESPONSIVE, Emit, Event, Severity
from dodona.core.ports.journal import Journal, KeyValueStore
from dodona.trees.language.schema import copy_if_mutable, values_equal
from dodona.trees.runtime.blackboard import Blackboard
from dodona.trees.runtime.debugger import Debugger, debug_node
from dodona.trees.runtime.frame import Frame
from dodona.trees.runtime.program import Branch, Instrument, Place
from dodona.trees.runtime.status import FAILURE, RUNNING, Status
from dodona.trees.runtime.step import AsyncStep, Step
from dodona.trees.runtime.timer import Timer
from dodona.trees.runtime.trace import Trace, trace_node
from dodona.trees.runtime.watchdog import Watchdog

if TYPE_CHECKING:
    from dodona.trees.language.tree import Tree

log = logging.getLogger("dodona.trees")
T = TypeVar("T")

GRACE_SECONDS = 5.0
# The reason for stopping a run that is restarted with a newer tree.
SUPERSEDED = "superseded"
OUT_OF_TICKS = "out_of_ticks"
OUT_OF_TIME = "out_of_time"


@dataclass(frozen=True, slots=True)
class Options:
    """The host's settings for a run.

    `host` is passed to every leaf with a parameter of that name. If `output` returns a value, the
    step records that instead of the chunk. `replay` receives the chunks of steps that are replayed
    from the journal; by default they go to `output`. `on_live` is called before each step that the
    journal does not have, so a host knows when the replay is over. A run that needs more than
    `max_ticks` is stopped; so is its body after `timeout_seconds`, without the time in which a
    step pauses the timers.
    """

    journal: Journal | None = None
    globals: KeyValueStore | None = None
    emit: Emit | None = None
    output: Callable[[Any], Any] | None = None
    replay: Callable[[Any], None] | None = None
    on_live: Callable[[], None] | None = None
    host: Any = None
    watchdog: Watchdog | None = None
    trace: Trace | None = None
    debugger: Debugger | None = None
    grace_seconds: float = GRACE_SECONDS
    max_ticks: int | None = None
    timeout_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended: success, failure, cancelled or stuck; and its final blackboard."""

    status: Status
    end_reason: str
    blackboard: Blackboard
    error: Mapping[str, Any] | None
    ticks: int
    recovered: bool = False

    @property
    def succeeded(self) -> bool:
        return self.status is Status.SUCCESS


class Run:
    """A running tree. Ticks are synchronous; tasks, timers and hosts wake it; nothing polls."""

    __slots__ = (
        "_crash",
        "_deadline",
        "_frame",
        "_globals",
        "_interrupted",
        "_last_progress_at",
        "_loop",
        "_output_error",
        "_provided_keys",
        "_stop_reason",
        "_stoppable",
        "_thread",
        "_timer_pauses",
        "_waiter",
        "_wake_pending",
        "_watchdog_timer",
        "board",
        "execution_counts",
        "has_effects",
        "host",
        "is_broken",
        "is_halting",
        "journal",
        "on_live",
        "options",
        "program",
        "record_visit",
        "running",
        "ticks",
        "timers",
        "tree",
        "watchdog_halts",
    )

    def __init__(
        self, tree: Tree, values: Mapping[str, Any] | None = None, options: Options | None = None
    ) -> None:
        self.tree = tree
        self.options = options or Options()
        self.journal = self.options.journal
        self.host = self.options.host
        self.on_live = self.options.on_live or _noop
        self.board = Blackboard(tree.run_schema, values)
        self.record_visit = (
            self.options.trace.record_visit if self.options.trace is not None else _ignore_visit
        )
        self.program = tree.program(self._choose_instrument())
        self.running: dict[AsyncStep, None] = {}
        self.timers: set[Timer] = set()
        self._deadline: Timer | None = None  # of the body
        self._timer_pauses = 0  # number of steps that pause the run's timers
        self.ticks = 0
        self.watchdog_halts = 0  # how often the watchdog halted the tree
        self.execution_counts: dict[str, int] = {}  # by step key
        self.has_effects = False  # a step has started that must not be repeated
        self.is_halting = False  # being stopped: steps start only in a :finally
        self.is_broken = False  # the journal has failed: no step starts
        self._frame = Frame(self, self.program.body.region, self.board)
        self._wake_pending = False
        self._stop_reason: str | None = None
        self._stoppable = True
        self._globals: dict[str, Any] = {}
        self._provided_keys = frozenset(values or ())
        self._interrupted = False
        self._crash: BaseException | None = None
        self._output_error: Exception | None = None  # raised by the host's output
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        self._waiter: asyncio.Future[None] | None = None
        self._last_progress_at = 0.0
        self._watchdog_timer: asyncio.TimerHandle | None = None
        if self.options.trace is not None:
            self.options.trace.attach(self.program.places)
        if self.options.debugger is not None:
            self.options.debugger.attach(self)

    def _choose_instrument(self) -> Instrument | None:
        if self.options.debugger is not None:
            return debug_node
        return trace_node if self.options.trace is not None else None

    # -- for hosts ---------------------------------------------------------------------------

    def tick(self) -> Status:
        """Tick the body once. `execute` ticks automatically; this is for other loops."""
        return self._tick(self.program.body, self._frame)

    def _tick(self, branch: Branch, frame: Frame) -> Status:
        self.ticks += 1
        limit = self.options.max_ticks
        if limit is not None and self.ticks > limit:
            self.cancel(OUT_OF_TICKS)
        if self.options.trace is not None:
            self.options.trace.begin_tick(self.ticks)
        status = branch.tick(frame)
        if self.options.debugger is not None:
            self.options.debugger.on_tick_end()
        return status

    def wake(self) -> None:
        """Schedule a tick."""
        self._wake_pending = True
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def cancel(self, reason: str = "cancelled") -> None:
        """Stop the body, run :finally and end. Only the first reason counts."""
        self._stop_reason = self._stop_reason or reason
        self.is_halting = self.is_halting or self._stoppable
        if self.options.debugger is not None:
            self.options.debugger.detach()
        self.wake()

    async def execute(self) -> Outcome:
        """Run to the end. If the awaiting task is cancelled, stop the run, then raise."""
        if self._loop is not None:
            raise TreeError(
                "a run can be executed only once.", hint="Create another Run of the same tree."
            )
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        await self._load_globals()
        self._start_watchdog()
        if self.options.timeout_seconds is not None:
            self._deadline = Timer(self._frame, self.options.timeout_seconds)
        recovered = False
        try:
            status = await self._run_phase(self.program.body, self._frame, stoppable=True)
            # It may have succeeded before the request to stop took effect.
            end_reason = (
                self._stop_reason if self._stop_reason and status is FAILURE else status.value
            )
            watchdog = self.options.watchdog
            if end_reason == "stuck" and watchdog is not None and watchdog.recovery is not None:
                status = await self._run_recovery(watchdog.recovery)
                recovered = True
            if self.program.finally_branch is not None:
                self.board.set_reserved("_status", end_reason)
                await self._run_unstoppable(self.program.finally_branch)
            if end_reason != SUPERSEDED:
                await self._save_globals()
        finally:
            await self._stop_remaining()
        if self._output_error is not None:
            raise self._output_error
        if self._interrupted:
            raise asyncio.CancelledError
        error = None if status is Status.SUCCESS else self.board.get("_error")
        return Outcome(status, end_reason, self.board, error, self.ticks, recovered)

    # -- phases ------------------------------------------------------------------------------

    async def _run_recovery(self, recovery_tree: Tree) -> Status:
        """Run the recovery tree on the blackboard that this tree has left."""
        self.board.extend_schema(recovery_tree.run_schema)
        program = recovery_tree.program()
        status = await self._run_unstoppable(program.body, ":recovery")
        if program.finally_branch is not None:
            self.board.set_reserved("_status", status.value)
            await self._run_unstoppable(program.finally_branch, ":recovery")
        return status

    async def _run_unstoppable(self, branch: Branch, phase: str = "") -> Status:
        frame = Frame(self, branch.region, self.board, phase=phase)
        return await self._run_phase(branch, frame, stoppable=False)

    async def _run_phase(self, branch: Branch, frame: Frame, *, stoppable: bool) -> Status:
        """Tick a branch until it ends; if it is being halted, until its steps have stopped."""
        self._stoppable = stoppable
        self.is_halting = stoppable and self._stop_reason is not None
        while True:
            self._wake_pending = False
            if self.options.debugger is not None:
                await self._wait_while_paused(self.options.debugger)
            if stoppable and not self.is_halting and self._deadline and self._deadline.fired:
                self._stop_at_deadline()
            if self.is_halting:
                status = FAILURE if branch.halt(frame) else RUNNING
            else:
                status = self._tick(branch, frame)
            self._raise_crash()
            if status is not RUNNING:
                return status
            await self._wait_for_wake()
            self._raise_crash()

    def _stop_at_deadline(self) -> None:
        message = "the time limit was reached."
        error = {"node": self.tree.name, "type": TreeError.__name__, "message": message}
        self.board.set_reserved("_error", error)
        self.cancel(OUT_OF_TIME)

    def _raise_crash(self) -> None:
        if self._crash is not None:
            raise self._crash

    async def _wait_for_wake(self) -> None:
        """Wait for a wake. Yield to other tasks even if one is already pending."""
        assert self._loop is not None
        try:
            if self._wake_pending:
                await asyncio.sleep(0)
            else:
                self._waiter = self._loop.create_future()
                await self._waiter
        except asyncio.CancelledError:
            self._interrupted = True
            self.cancel()
        finally:
            self._waiter = None

    async def _wait_while_paused(self, debugger: Debugger) -> None:
        while debugger.is_paused and not self.is_halting:
            self._wake_pending = False
            await self._wait_for_wake()

    async def _stop_remaining(self) -> None:
        """Stop all timers and running steps, and wait until they have ended."""
        if self._watchdog_timer is not None:
            self._watchdog_timer.cancel()
        for timer in tuple(self.timers):
            timer.cancel()
        while self.running:
            for step in tuple(self.running):
                step.stop()
            await self._wait_for_wake()

    async def _await_uncancelled(self, awaitable: Awaitable[T]) -> T:
        """Await this even if cancelled meanwhile; the run raises the cancellation at its end."""
        task = asyncio.ensure_future(awaitable)
        while not task.done():
            try:
                await asyncio.wait([task])
            except asyncio.CancelledError:
                self._interrupted = True
                self.cancel()
        return task.result()

    async def _load_globals(self) -> None:
        keys = self.tree.global_keys
        if keys and self.options.globals is not None:
            stored = await self.options.globals.get(keys)
            try:
                self.board.update({k: v for k, v in stored.items() if k not in self._provided_keys})
            except TreeError as error:
                raise TreeError(
                    f"a stored global key does not fit tree {self.tree.name}: {error.message}",
                    hint="Change the schema, or the stored value.",
                ) from error
            self._globals = {key: copy_if_mutable(self.board[key]) for key in keys}

    async def _save_globals(self) -> None:
        changes = {
            k: self.board[k]
            for k, old in self._globals.items()
            if not values_equal(self.board[k], old)
        }
        if changes and self.options.globals is not None:
            await self._await_uncancelled(self.options.globals.put(changes))

    # -- for nodes and steps -----------------------------------------------------------------

    @property
    def paused_at(self) -> Place | None:
        """The place at which a debugger has paused this tick, if any."""
        return self.options.debugger.paused_at if self.options.debugger is not None else None

    def fail_node(self, place: Place, frame: Frame, error: BaseException) -> Status:
        """Record the exception of a node in the log, `_error` and the trace. Return FAILURE."""
        if not isinstance(error, DodonaError):
            log.warning("node %s raised", place.path, exc_info=error)
        report = {"node": place.path, "type": type(error).__name__, "message": str(error)}
        frame.board.set_reserved("_error", report)
        if self.options.trace is not None:
            self.options.trace.record_error(place, report)
        return FAILURE

    def next_execution_key(self, key: str) -> str:
        """Return the key of this execution: from the second one on with a number."""
        count = self.execution_counts[key] = self.execution_counts.get(key, 0) + 1
        return key if count == 1 else f"{key}#{count}"

    def crash(self, error: BaseException) -> None:
        """End the run with this error: the journal cannot be written, or the runtime has a bug."""
        self._crash = self._crash or error
        self.is_broken = True

    def now(self) -> float:
        return self._loop.time() if self._loop is not None else 0.0

    def mark_progress(self) -> None:
        """Record progress for the watchdog."""
        self._last_progress_at = self.now()

    def call_in_loop(self, handle: Callable[[Any], None], chunk: Any) -> None:
        """Call `handle` in the loop's thread: immediately unless called from a leaf's thread."""
        if self._loop is not None and threading.get_ident() != self._thread:
            self._loop.call_soon_threadsafe(handle, chunk)
        else:
            handle(chunk)

    def deliver(self, chunk: Any, step: Step) -> Sequence[Any]:
        """Pass a chunk of output to the host. Return the chunk that the step records, if any."""
        recorded = self._call_output(self.options.output, chunk, step)
        if self._output_error is not None:
            return ()  # nothing could read it again
        return (chunk if recorded is None else recorded,)

    def replay(self, chunk: Any, step: Step) -> None:
        """Pass a chunk of output from the journal to the host."""
        self._call_output(self.options.replay or self.options.output, chunk, step)

    def _call_output(self, handler: Callable[[Any], Any] | None, chunk: Any, step: Step) -> Any:
        """Call the host's handler. Its exception ends the run, whatever the leaf does.

        A TreeError is about what the leaf has sent, so it names the leaf and its place.
        """
        self.mark_progress()
        if handler is None or self._output_error is not None:
            return None
        try:
            return handler(chunk)
        except TreeError as error:
            self._output_error = TreeError(
                f"leaf '{step.leaf.name}': {error.message}",
                where=step.place.node.span.location(),
                hint=error.hint,
            )
        except Exception as error:  # noqa: BLE001 - last resort: nothing above catches it
            self._output_error = error
        self.cancel("deaf")
        return None

    def emit(self, kind: str, severity: Severity, **payload: Any) -> None:
        if self.options.emit is not None:
            self.options.emit(Event(kind, f"tree:{self.tree.name}", severity, payload))

    @property
    def are_timers_paused(self) -> bool:
        """Whether the run's timers are paused."""
        return self._timer_pauses > 0

    @contextmanager
    def pause_timers(self) -> Generator[None]:
        """Pause the run's timeouts and waits within the block."""
        self._timer_pauses += 1
        if self._timer_pauses == 1:
            for timer in self.timers:
                timer.pause()
        try:
            yield
        finally:
            self._timer_pauses -= 1
            if not self._timer_pauses:
                for timer in self.timers:
                    timer.resume()

    def on_step_start(self, step: AsyncStep) -> None:
        self.running[step] = None
        self._last_progress_at = step.started_at

    def on_step_end(self, step: AsyncStep) -> None:
        self.running.pop(step, None)
        if step.grace_timer is not None:
            step.grace_timer.cancel()
        self.mark_progress()
        step.frame.wake()

    def start_grace_timer(self, step: AsyncStep) -> None:
        """After the grace period, check whether a step that was asked to stop has stopped."""
        assert self._loop is not None
        step.grace_timer = self._loop.call_later(
            self.options.grace_seconds, self._on_grace_expired, step
        )

    def _on_grace_expired(self, step: AsyncStep) -> None:
        if step not in self.running:
            return
        detached = step.force_stop()
        if not detached:
            self.start_grace_timer(step)
        log.error(
            "leaf %s is still running %s s after it was asked to stop%s",
            step.leaf.name,
            self.options.grace_seconds,
            ": its thread is abandoned and cannot write anything" if detached else "",
        )
        self.emit(
            TREE_UNRESPONSIVE,
            Severity.ERROR,
            node=step.place.path,
            leaf=step.leaf.name,
            detached=detached,
            grace_seconds=self.options.grace_seconds,
        )

    # -- watchdog ----------------------------------------------------------------------------

    def _start_watchdog(self) -> None:
        self.mark_progress()
        if self.options.watchdog is not None and self._loop is not None:
            self._watchdog_timer = self._loop.call_later(
                self.options.watchdog.timeout_seconds, self._check_progress
            )

    def _check_progress(self) -> None:
        """Check for progress at most once per timeout; streaming does not restart the timer."""
        watchdog = self.options.watchdog
        assert watchdog is not None
        assert self._loop is not None
        idle_seconds = self.now() - self._last_progress_at
        waiting = not self.running and any(timer is not self._deadline for timer in self.timers)
        paused = self.options.debugger is not None and self.options.debugger.is_paused
        if waiting or paused:
            self.mark_progress()
            idle_seconds = 0.0
        stuck = idle_seconds >= watchdog.timeout_seconds
        delay = watchdog.timeout_seconds if stuck else watchdog.timeout_seconds - idle_seconds
        self._watchdog_timer = self._loop.call_later(delay, self._check_progress)
        if stuck:
            self.mark_progress()
            self._handle_stuck(watchdog, idle_seconds)

    def _handle_stuck(self, watchdog: Watchdog, seconds: float) -> None:
        nodes = [step.place.path for step in self.running] or [self.tree.name]
        count, escalate = watchdog.record_strike(self.tree.name, self.now())
        report = {
            "nodes": nodes,
            "seconds": round(seconds, 3),
            "count": count,
            "blackboard": self.board.snapshot(),
        }
        self.board.set_reserved("_stuck", {k: v for k, v in report.items() if k != "blackboard"})
        error = TreeError(f"no progress for {seconds:g} s.", hint="The watchdog stopped it.")
        for step in tuple(self.running):
            if not step.stopping:
                step.fail(error)
        if escalate or not self.running:
            message = {"node": nodes[0], "type": "TreeError", "message": str(error)}
            self.board.set_reserved("_error", message)
            self.watchdog_halts += 1
            self.is_halting = True  # even in :finally, which only the watchdog can stop
            self.cancel("stuck")
        self.emit(TREE_STUCK, Severity.ERROR, **report)
        if escalate:
            self.emit(TREE_ESCALATED, Severity.CRITICAL, **report)


def _noop() -> None:
    """Do nothing: the host does not follow the replay."""


def _ignore_visit(visit: object) -> None:
    """Discard a visit: the run is not traced."""


async def run(
    tree: Tree,
    values: Mapping[str, Any] | None = None,
    options: Options | None = None,
) -> Outcome:
    """Run a tree to the end, with these initial values on its blackboard."""
    return await Run(tree, values, options).execute()
