"""One execution of a tree: ticks when something wakes it, and ends when all of it has ended."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from dodona.core.errors import DodonaError, StoreError, TreeError
from dodona.core.events import TREE_ESCALATED, TREE_STUCK, TREE_UNRESPONSIVE, Emit, Event, Severity
from dodona.core.ports.journal import Journal, KeyValueStore
from dodona.trees.language.schema import copy_if_mutable, values_equal
from dodona.trees.runtime.blackboard import Blackboard
from dodona.trees.runtime.debugger import Debugger, debug_node
from dodona.trees.runtime.frame import Frame
from dodona.trees.runtime.program import Branch, Instrument, Place
from dodona.trees.runtime.status import FAILURE, RUNNING, Status
from dodona.trees.runtime.step import AsyncStep
from dodona.trees.runtime.timer import Timer
from dodona.trees.runtime.trace import Trace, trace_node
from dodona.trees.runtime.watchdog import Watchdog

if TYPE_CHECKING:
    from dodona.trees.language.tree import Tree

log = logging.getLogger("dodona.trees")
T = TypeVar("T")

GRACE_SECONDS = 5.0
# Why a run is stopped that is begun again with a newer tree.
SUPERSEDED = "superseded"
OUT_OF_TICKS = "out_of_ticks"


@dataclass(frozen=True, slots=True)
class Options:
    """What a host may plug into a run.

    `host` is handed to every leaf that has a parameter of that name. What `output` makes of a
    chunk is what its step keeps, unless it returns nothing. `replay` gets the chunks of steps
    that are applied from the journal; without it they go to `output`. A run that needs more than
    `max_ticks` is stopped.
    """

    journal: Journal | None = None
    globals: KeyValueStore | None = None
    emit: Emit | None = None
    output: Callable[[Any], Any] | None = None
    replay: Callable[[Any], None] | None = None
    host: Any = None
    watchdog: Watchdog | None = None
    trace: Trace | None = None
    debugger: Debugger | None = None
    grace_seconds: float = GRACE_SECONDS
    max_ticks: int | None = None


@dataclass(frozen=True, slots=True)
class ActiveStep:
    """A step that runs now."""

    path: str
    key: str
    leaf: str
    seconds: float
    stopping: bool


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended: success, failure, cancelled or stuck; and what it knew then."""

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
    """Ticks are synchronous; tasks, timers and hosts wake it; nothing polls."""

    __slots__ = (
        "_crash",
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
        self.board = Blackboard(tree.run_schema, values)
        self.record_visit = (
            self.options.trace.record_visit if self.options.trace is not None else _ignore_visit
        )
        self.program = tree.program(self._choose_instrument())
        self.running: dict[AsyncStep, None] = {}
        self.timers: set[Timer] = set()
        self._timer_pauses = 0  # steps under whose own limit the run's time stands still
        self.ticks = 0
        self.watchdog_halts = 0  # how often the watchdog found nothing it could fail
        self.execution_counts: dict[str, int] = {}  # of each step key
        self.has_effects = False  # has a step started that must not be repeated?
        self.is_halting = False  # is it being stopped? Then steps start in a :finally only
        self.is_broken = False  # has the journal failed? Then no step starts at all
        self._frame = Frame(self, self.program.body.region, self.board)
        self._wake_pending = False
        self._stop_reason: str | None = None
        self._stoppable = True
        self._globals: dict[str, Any] = {}
        self._provided_keys = frozenset(values or ())
        self._interrupted = False
        self._crash: BaseException | None = None
        self._output_error: Exception | None = None  # what the host's output raised
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
        """One tick of the body. A run that is driven ticks itself; this is for other loops."""
        return self._tick(self.program.body, self._frame)

    def _tick(self, branch: Branch, frame: Frame) -> Status:
        self.ticks += 1
        most = self.options.max_ticks
        if most is not None and self.ticks > most:
            self.cancel(OUT_OF_TICKS)
        if self.options.trace is not None:
            self.options.trace.begin_tick(self.ticks)
        status = branch.tick(frame)
        if self.options.debugger is not None:
            self.options.debugger.on_tick_end()
        return status

    def wake(self) -> None:
        """Something changed: tick soon."""
        self._wake_pending = True
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def cancel(self, reason: str = "cancelled") -> None:
        """Stop the body, run :finally, end. The first reason given is the one that counts."""
        self._stop_reason = self._stop_reason or reason
        self.is_halting = self.is_halting or self._stoppable
        if self.options.debugger is not None:
            self.options.debugger.detach()
        self.wake()

    def active_steps(self) -> list[ActiveStep]:
        """What runs at this moment, oldest first."""
        now = self.now()
        return [
            ActiveStep(
                work.place.path, work.key, work.leaf.name, now - work.started_at, work.stopping
            )
            for work in self.running
        ]

    async def execute(self) -> Outcome:
        """Run to the end. When the awaiting task is cancelled, stop first, then say so."""
        if self._loop is not None:
            raise TreeError("a run is driven once.", hint="Make another Run of the same tree.")
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        await self._load_globals()
        self._start_watchdog()
        recovered = False
        try:
            status = await self._run_phase(self.program.body, self._frame, stoppable=True)
            # Asked to stop, it may have succeeded all the same.
            ended = self._stop_reason if self._stop_reason and status is FAILURE else status.value
            dog = self.options.watchdog
            if ended == "stuck" and dog is not None and dog.recovery is not None:
                status = await self._run_recovery(dog.recovery)
                recovered = True
            if self.program.finally_branch is not None:
                self.board.set_reserved("_status", ended)
                await self._run_unstoppable(self.program.finally_branch)
            if ended != SUPERSEDED:
                await self._save_globals()
        finally:
            await self._stop_remaining()
        if self._output_error is not None:
            raise self._output_error
        if self._interrupted:
            raise asyncio.CancelledError
        error = None if status is Status.SUCCESS else self.board.get("_error")
        return Outcome(status, ended, self.board, error, self.ticks, recovered)

    # -- phases ------------------------------------------------------------------------------

    async def _run_recovery(self, recovery_tree: Tree) -> Status:
        """Let another tree answer, on what this one has left."""
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
        """Tick a branch until it has ended, or, once it is to stop, until it is quiet."""
        self._stoppable = stoppable
        self.is_halting = stoppable and self._stop_reason is not None
        while True:
            self._wake_pending = False
            if self.options.debugger is not None:
                await self._wait_while_paused(self.options.debugger)
            if self.is_halting:
                status = FAILURE if branch.halt(frame) else RUNNING
            else:
                status = self._tick(branch, frame)
            self._raise_crash()
            if status is not RUNNING:
                return status
            await self._wait_for_wake()
            self._raise_crash()

    def _raise_crash(self) -> None:
        if self._crash is not None:
            raise self._crash

    async def _wait_for_wake(self) -> None:
        """Wait for a wake; let others run even when there was one already."""
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
        """Nothing outlives the run: stop what still runs, and wait until it has ended."""
        if self._watchdog_timer is not None:
            self._watchdog_timer.cancel()
        for timer in tuple(self.timers):
            timer.cancel()
        while self.running:
            for work in tuple(self.running):
                work.stop()
            await self._wait_for_wake()

    async def _await_uncancelled(self, awaitable: Awaitable[T]) -> T:
        """Await this even when cancelled meanwhile; the cancellation is told at the end."""
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
                raise StoreError(
                    f"a stored global does not fit tree {self.tree.name}: {error.message}",
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
        """Where a debugger holds this tick, if one does."""
        return self.options.debugger.paused_at if self.options.debugger is not None else None

    def fail_node(self, place: Place, frame: Frame, error: BaseException) -> Status:
        """A node raised: it has failed, and the reason is where people and trees can see it."""
        if not isinstance(error, DodonaError):
            log.warning("node %s raised", place.path, exc_info=error)
        said = {"node": place.path, "type": type(error).__name__, "message": str(error)}
        frame.board.set_reserved("_error", said)
        if self.options.trace is not None:
            self.options.trace.record_error(place, said)
        return FAILURE

    def next_execution_key(self, key: str) -> str:
        """The key of this execution: the first has none, the others a number."""
        count = self.execution_counts[key] = self.execution_counts.get(key, 0) + 1
        return key if count == 1 else f"{key}#{count}"

    def crash(self, error: BaseException) -> None:
        """The journal cannot be written, or the runtime has a bug: end the run with that."""
        self._crash = self._crash or error
        self.is_broken = True

    def now(self) -> float:
        return self._loop.time() if self._loop is not None else 0.0

    def mark_progress(self) -> None:
        """There is progress."""
        self._last_progress_at = self.now()

    def call_in_loop(self, handle: Callable[[Any], None], chunk: Any) -> None:
        """Call this with a chunk in the loop's thread: now, unless a leaf's thread asks."""
        if self._loop is not None and threading.get_ident() != self._thread:
            self._loop.call_soon_threadsafe(handle, chunk)
        else:
            handle(chunk)

    def deliver(self, chunk: Any) -> Any:
        """Hand a piece of output to the host; returns what the step keeps of it."""
        kept = self._call_output(self.options.output, chunk)
        return chunk if kept is None else kept

    def replay(self, chunk: Any) -> None:
        """Hand over a piece of output that the journal has kept."""
        self._call_output(self.options.replay or self.options.output, chunk)

    def _call_output(self, handler: Callable[[Any], Any] | None, chunk: Any) -> Any:
        """What the host cannot take is the host's error, not the leaf's: the run ends with it."""
        self.mark_progress()
        if handler is None or self._output_error is not None:
            return None
        try:
            return handler(chunk)
        except Exception as error:  # noqa: BLE001 - the boundary of a task root
            self._output_error = error
            self.cancel("deaf")
            return None

    def emit(self, kind: str, severity: Severity, **payload: Any) -> None:
        if self.options.emit is not None:
            self.options.emit(Event(kind, f"tree:{self.tree.name}", severity, payload))

    @property
    def are_timers_paused(self) -> bool:
        """Do the run's timers stand still?"""
        return self._timer_pauses > 0

    @contextmanager
    def pause_timers(self) -> Generator[None]:
        """Within the block no time passes for the run's timeouts and waits."""
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
        """A step was asked to stop: look after the grace period whether it has."""
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
            "leaf %s does not stop %s s after it was told to%s",
            step.leaf.name,
            self.options.grace_seconds,
            ": its thread is left behind and can write nothing" if detached else "",
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
        """Once per timeout at most: has anything moved since? Streaming re-arms nothing."""
        dog = self.options.watchdog
        assert dog is not None
        assert self._loop is not None
        quiet_for = self.now() - self._last_progress_at
        waiting = bool(self.timers) and not self.running
        paused = self.options.debugger is not None and self.options.debugger.is_paused
        if waiting or paused:
            self.mark_progress()
            quiet_for = 0.0
        stuck = quiet_for >= dog.timeout_seconds
        rest = dog.timeout_seconds if stuck else dog.timeout_seconds - quiet_for
        self._watchdog_timer = self._loop.call_later(rest, self._check_progress)
        if stuck:
            self.mark_progress()
            self._handle_stuck(dog, quiet_for)

    def _handle_stuck(self, watchdog: Watchdog, seconds: float) -> None:
        nodes = [work.place.path for work in self.running] or [self.tree.name]
        count, escalate = watchdog.record_strike(self.tree.name, self.now())
        report = {
            "nodes": nodes,
            "seconds": round(seconds, 3),
            "count": count,
            "blackboard": self.board.snapshot(),
        }
        self.board.set_reserved("_stuck", {k: v for k, v in report.items() if k != "blackboard"})
        error = TreeError(f"no progress for {seconds:g} s.", hint="The watchdog ended it.")
        for work in tuple(self.running):
            if not work.stopping:
                work.fail(error)
        if escalate or not self.running:
            said = {"node": nodes[0], "type": "TreeError", "message": str(error)}
            self.board.set_reserved("_error", said)
            self.watchdog_halts += 1
            self.is_halting = True  # also in :finally, which nobody else may stop
            self.cancel("stuck")
        self.emit(TREE_STUCK, Severity.ERROR, **report)
        if escalate:
            self.emit(TREE_ESCALATED, Severity.CRITICAL, **report)


def _ignore_visit(visit: object) -> None:
    """A run that is not traced has nobody to tell."""


async def run(
    tree: Tree,
    values: Mapping[str, Any] | None = None,
    options: Options | None = None,
) -> Outcome:
    """Run a tree to its end, with these values on its blackboard."""
    return await Run(tree, values, options).execute()
