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
from dodona.core.ports.journal import Journal, KeyValue
from dodona.trees.language.schema import fresh, same
from dodona.trees.runtime.blackboard import Blackboard
from dodona.trees.runtime.debugger import Debugger, debugged
from dodona.trees.runtime.frame import Frame
from dodona.trees.runtime.program import Branch, Instrument, Place
from dodona.trees.runtime.status import FAILURE, RUNNING, Status
from dodona.trees.runtime.step import Work
from dodona.trees.runtime.timer import Timer
from dodona.trees.runtime.trace import Trace, traced
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
    globals: KeyValue | None = None
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
class Active:
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
    ended: str
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
        "_deaf",
        "_dirty",
        "_frame",
        "_given",
        "_globals",
        "_interrupted",
        "_loop",
        "_resting",
        "_stop",
        "_stoppable",
        "_thread",
        "_touched",
        "_waiter",
        "_watch",
        "board",
        "executions",
        "given_up",
        "has_effects",
        "host",
        "is_broken",
        "is_halting",
        "journal",
        "options",
        "program",
        "running",
        "ticks",
        "timers",
        "tree",
        "visit",
    )

    def __init__(
        self, tree: Tree, values: Mapping[str, Any] | None = None, options: Options | None = None
    ) -> None:
        self.tree = tree
        self.options = options or Options()
        self.journal = self.options.journal
        self.host = self.options.host
        self.board = Blackboard(tree.keys, values)
        self.visit = self.options.trace.visit if self.options.trace is not None else _unseen
        self.program = tree.program(self._instrument())
        self.running: dict[Work, None] = {}
        self.timers: set[Timer] = set()
        self._resting = 0  # steps under whose own limit the run's time stands still
        self.ticks = 0
        self.given_up = 0  # how often the watchdog found nothing it could fail
        self.executions: dict[str, int] = {}  # of each step key
        self.has_effects = False  # has a step started that must not be repeated?
        self.is_halting = False  # is it being stopped? Then steps start in a :finally only
        self.is_broken = False  # has the journal failed? Then no step starts at all
        self._frame = Frame(self, self.program.body.region, self.board)
        self._dirty = False
        self._stop: str | None = None
        self._stoppable = True
        self._globals: dict[str, Any] = {}
        self._given = frozenset(values or ())
        self._interrupted = False
        self._crash: BaseException | None = None
        self._deaf: Exception | None = None  # what the host's output raised
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        self._waiter: asyncio.Future[None] | None = None
        self._touched = 0.0
        self._watch: asyncio.TimerHandle | None = None
        if self.options.trace is not None:
            self.options.trace.attach(self.program.places)
        if self.options.debugger is not None:
            self.options.debugger.attach(self)

    def _instrument(self) -> Instrument | None:
        if self.options.debugger is not None:
            return debugged
        return traced if self.options.trace is not None else None

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
            self.options.trace.begin(self.ticks)
        status = branch.tick(frame)
        if self.options.debugger is not None:
            self.options.debugger.ticked()
        return status

    def wake(self) -> None:
        """Something changed: tick soon."""
        self._dirty = True
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def cancel(self, reason: str = "cancelled") -> None:
        """Stop the body, run :finally, end. The first reason given is the one that counts."""
        self._stop = self._stop or reason
        self.is_halting = self.is_halting or self._stoppable
        if self.options.debugger is not None:
            self.options.debugger.detach()
        self.wake()

    def active(self) -> list[Active]:
        """What runs at this moment, oldest first."""
        now = self.now()
        return [
            Active(work.place.path, work.key, work.leaf.name, now - work.since, work.stopping)
            for work in self.running
        ]

    async def drive(self) -> Outcome:
        """Run to the end. When the awaiting task is cancelled, stop first, then say so."""
        if self._loop is not None:
            raise TreeError("a run is driven once.", hint="Make another Run of the same tree.")
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        await self._load_globals()
        self._arm()
        recovered = False
        try:
            status = await self._phase(self.program.body, self._frame, stoppable=True)
            # Asked to stop, it may have succeeded all the same.
            ended = self._stop if self._stop and status is FAILURE else status.value
            dog = self.options.watchdog
            if ended == "stuck" and dog is not None and dog.recovery is not None:
                status = await self._recover(dog.recovery)
                recovered = True
            if self.program.final is not None:
                self.board.reserve("_status", ended)
                await self._extra(self.program.final)
            if ended != SUPERSEDED:
                await self._save_globals()
        finally:
            await self._sweep()
        if self._deaf is not None:
            raise self._deaf
        if self._interrupted:
            raise asyncio.CancelledError
        error = None if status is Status.SUCCESS else self.board.get("_error")
        return Outcome(status, ended, self.board, error, self.ticks, recovered)

    # -- phases ------------------------------------------------------------------------------

    async def _recover(self, tree: Tree) -> Status:
        """Let another tree answer, on what this one has left."""
        self.board.adopt(tree.keys)
        program = tree.program()
        status = await self._extra(program.body, ":recovery")
        if program.final is not None:
            self.board.reserve("_status", status.value)
            await self._extra(program.final, ":recovery")
        return status

    async def _extra(self, branch: Branch, phase: str = "") -> Status:
        frame = Frame(self, branch.region, self.board, phase=phase)
        return await self._phase(branch, frame, stoppable=False)

    async def _phase(self, branch: Branch, frame: Frame, *, stoppable: bool) -> Status:
        """Tick a branch until it has ended, or, once it is to stop, until it is quiet."""
        self._stoppable = stoppable
        self.is_halting = stoppable and self._stop is not None
        while True:
            self._dirty = False
            if self.options.debugger is not None:
                await self._unpaused(self.options.debugger)
            if self.is_halting:
                status = FAILURE if branch.halt(frame) else RUNNING
            else:
                status = self._tick(branch, frame)
            self._check()
            if status is not RUNNING:
                return status
            await self._woken()
            self._check()

    def _check(self) -> None:
        if self._crash is not None:
            raise self._crash

    async def _woken(self) -> None:
        """Wait for a wake; let others run even when there was one already."""
        assert self._loop is not None
        try:
            if self._dirty:
                await asyncio.sleep(0)
            else:
                self._waiter = self._loop.create_future()
                await self._waiter
        except asyncio.CancelledError:
            self._interrupted = True
            self.cancel()
        finally:
            self._waiter = None

    async def _unpaused(self, debugger: Debugger) -> None:
        while debugger.paused and not self.is_halting:
            self._dirty = False
            await self._woken()

    async def _sweep(self) -> None:
        """Nothing outlives the run: stop what still runs, and wait until it has ended."""
        if self._watch is not None:
            self._watch.cancel()
        for timer in tuple(self.timers):
            timer.cancel()
        while self.running:
            for work in tuple(self.running):
                work.stop()
            await self._woken()

    async def _finish(self, awaitable: Awaitable[T]) -> T:
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
                self.board.update({k: v for k, v in stored.items() if k not in self._given})
            except TreeError as error:
                raise StoreError(
                    f"a stored global does not fit tree {self.tree.name}: {error.message}",
                    hint="Change the schema, or the stored value.",
                ) from error
            self._globals = {key: fresh(self.board[key]) for key in keys}

    async def _save_globals(self) -> None:
        changes = {
            k: self.board[k] for k, old in self._globals.items() if not same(self.board[k], old)
        }
        if changes and self.options.globals is not None:
            await self._finish(self.options.globals.put(changes))

    # -- for nodes and steps -----------------------------------------------------------------

    @property
    def held(self) -> Place | None:
        """Where a debugger holds this tick, if one does."""
        return self.options.debugger.held if self.options.debugger is not None else None

    def failed(self, place: Place, frame: Frame, error: BaseException) -> Status:
        """A node raised: it has failed, and the reason is where people and trees can see it."""
        if not isinstance(error, DodonaError):
            log.warning("node %s raised", place.path, exc_info=error)
        said = {"node": place.path, "type": type(error).__name__, "message": str(error)}
        frame.board.reserve("_error", said)
        if self.options.trace is not None:
            self.options.trace.raised(place, said)
        return FAILURE

    def numbered(self, key: str) -> str:
        """The key of this execution: the first has none, the others a number."""
        count = self.executions[key] = self.executions.get(key, 0) + 1
        return key if count == 1 else f"{key}#{count}"

    def crash(self, error: BaseException) -> None:
        """The journal cannot be written, or the runtime has a bug: end the run with that."""
        self._crash = self._crash or error
        self.is_broken = True

    def now(self) -> float:
        return self._loop.time() if self._loop is not None else 0.0

    def touch(self) -> None:
        """There is progress."""
        self._touched = self.now()

    def in_loop(self, handle: Callable[[Any], None], chunk: Any) -> None:
        """Call this with a chunk in the loop's thread: now, unless a leaf's thread asks."""
        if self._loop is not None and threading.get_ident() != self._thread:
            self._loop.call_soon_threadsafe(handle, chunk)
        else:
            handle(chunk)

    def deliver(self, chunk: Any) -> Any:
        """Hand a piece of output to the host; returns what the step keeps of it."""
        kept = self._hand_out(self.options.output, chunk)
        return chunk if kept is None else kept

    def replay(self, chunk: Any) -> None:
        """Hand over a piece of output that the journal has kept."""
        self._hand_out(self.options.replay or self.options.output, chunk)

    def _hand_out(self, take: Callable[[Any], Any] | None, chunk: Any) -> Any:
        """What the host cannot take is the host's error, not the leaf's: the run ends with it."""
        self.touch()
        if take is None or self._deaf is not None:
            return None
        try:
            return take(chunk)
        except Exception as error:  # noqa: BLE001 - the boundary of a task root
            self._deaf = error
            self.cancel("deaf")
            return None

    def emit(self, kind: str, severity: Severity, **payload: Any) -> None:
        if self.options.emit is not None:
            self.options.emit(Event(kind, f"tree:{self.tree.name}", severity, payload))

    @property
    def is_resting(self) -> bool:
        """Do the run's timers stand still?"""
        return self._resting > 0

    @contextmanager
    def rest(self) -> Generator[None]:
        """Within the block no time passes for the run's timeouts and waits."""
        self._resting += 1
        if self._resting == 1:
            for timer in self.timers:
                timer.pause()
        try:
            yield
        finally:
            self._resting -= 1
            if not self._resting:
                for timer in self.timers:
                    timer.resume()

    def began(self, work: Work) -> None:
        self.running[work] = None
        self._touched = work.since

    def ended(self, work: Work) -> None:
        self.running.pop(work, None)
        if work.grace is not None:
            work.grace.cancel()
        self.touch()
        work.frame.wake()

    def expect_end(self, work: Work) -> None:
        """A step was asked to stop: look after the grace period whether it has."""
        assert self._loop is not None
        work.grace = self._loop.call_later(self.options.grace_seconds, self._insist, work)

    def _insist(self, work: Work) -> None:
        if work not in self.running:
            return
        detached = work.insist()
        if not detached:
            self.expect_end(work)
        log.error(
            "leaf %s does not stop %s s after it was told to%s",
            work.leaf.name,
            self.options.grace_seconds,
            ": its thread is left behind and can write nothing" if detached else "",
        )
        self.emit(
            TREE_UNRESPONSIVE,
            Severity.ERROR,
            node=work.place.path,
            leaf=work.leaf.name,
            detached=detached,
            grace_seconds=self.options.grace_seconds,
        )

    # -- watchdog ----------------------------------------------------------------------------

    def _arm(self) -> None:
        self.touch()
        if self.options.watchdog is not None and self._loop is not None:
            self._watch = self._loop.call_later(self.options.watchdog.seconds, self._look)

    def _look(self) -> None:
        """Once per timeout at most: has anything moved since? Streaming re-arms nothing."""
        dog = self.options.watchdog
        assert dog is not None
        assert self._loop is not None
        quiet_for = self.now() - self._touched
        waiting = bool(self.timers) and not self.running
        paused = self.options.debugger is not None and self.options.debugger.paused
        if waiting or paused:
            self.touch()
            quiet_for = 0.0
        stuck = quiet_for >= dog.seconds
        rest = dog.seconds if stuck else dog.seconds - quiet_for
        self._watch = self._loop.call_later(rest, self._look)
        if stuck:
            self.touch()
            self._stuck(dog, quiet_for)

    def _stuck(self, dog: Watchdog, seconds: float) -> None:
        nodes = [work.place.path for work in self.running] or [self.tree.name]
        count, escalate = dog.strike(self.tree.name, self.now())
        report = {
            "nodes": nodes,
            "seconds": round(seconds, 3),
            "count": count,
            "blackboard": self.board.snapshot(),
        }
        self.board.reserve("_stuck", {k: v for k, v in report.items() if k != "blackboard"})
        error = TreeError(f"no progress for {seconds:g} s.", hint="The watchdog ended it.")
        for work in tuple(self.running):
            if not work.stopping:
                work.fail(error)
        if escalate or not self.running:
            said = {"node": nodes[0], "type": "TreeError", "message": str(error)}
            self.board.reserve("_error", said)
            self.given_up += 1
            self.is_halting = True  # also in :finally, which nobody else may stop
            self.cancel("stuck")
        self.emit(TREE_STUCK, Severity.ERROR, **report)
        if escalate:
            self.emit(TREE_ESCALATED, Severity.CRITICAL, **report)


def _unseen(visit: object) -> None:
    """A run that is not traced has nobody to tell."""


async def run(
    tree: Tree,
    values: Mapping[str, Any] | None = None,
    options: Options | None = None,
) -> Outcome:
    """Run a tree to its end, with these values on its blackboard."""
    return await Run(tree, values, options).drive()
