"""The local engine: runs of this process, in the order of their lanes.

It holds nothing that matters: what waits and who drives is in the store, so processes share lanes,
and a run whose process died is taken up by another.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from dodona.agent.run.compressor import PostRunTask
from dodona.agent.run.driver import OnStarted, RunHandle
from dodona.agent.run_context.chunk_feed import ChunkFeed, Redact, no_redaction
from dodona.agent.run_context.deps import RunPolicy
from dodona.core.domain.conversations.conversation import (
    Claim,
    ClaimedRun,
    RunRequest,
    RunStatus,
    SubmittedRun,
)
from dodona.core.errors import StoreError
from dodona.store import Store
from dodona.telemetry import log_context as trail

RELEASED: Final = "left"
LOOK_EVERY: Final = 0.25  # seconds, at lanes that others hold and at wishes to cancel
LOOK_AROUND_EVERY: Final = 5.0  # … for runs whose process has died
LAST_PATIENCE: Final = 30.0  # … for what is left to do after the answer that was asked for

_log = logging.getLogger(__name__)

Drive = Callable[[ClaimedRun, ChunkFeed, OnStarted], Awaitable[PostRunTask | None]]


@dataclass(slots=True)
class _Running:
    """A run of this process. `held` is its tree, once that has begun."""

    claim: Claim
    feed: ChunkFeed
    task: asyncio.Task[None] | None = None
    held: RunHandle | None = None
    is_cancelled: bool = False

    def hold(self, held: RunHandle) -> None:
        self.held = held
        if self.is_cancelled:
            held.cancel()

    def cancel(self) -> None:
        self.is_cancelled = True
        if self.held is not None:
            self.held.cancel()

    def release(self) -> None:
        """Stop without ending: the journal first, so that nothing of the stop is written."""
        assert self.task is not None
        if self.held is None:
            self.task.cancel()
            return
        self.held.journal.release()
        self.held.run.cancel(RELEASED)


class LocalEngine:
    """Dispatches, orders and wakes."""

    def __init__(
        self,
        storage: Store,
        drive: Drive,
        *,
        serves: bool,
        conduct: RunPolicy | None = None,
        hide: Redact = no_redaction,
    ) -> None:
        self._storage = storage
        self._conduct = conduct or RunPolicy()
        self._hide = hide
        self._drive = drive
        self._serves = serves
        self._running: dict[int, _Running] = {}
        self._waiting: set[int] = set()  # conversations with a run of ours that waits
        self._stirred = asyncio.Event()  # a run has begun or ended
        self._looking: asyncio.Task[None] | None = None
        self._takers: set[asyncio.Task[None]] = set()
        self._post_run: dict[int, asyncio.Task[None]] = {}  # by conversation: one at a time
        self.is_shutting_down = False

    async def submit(self, asking: RunRequest) -> SubmittedRun:
        """Take a question in, and drive it if its lane is free."""
        if self.is_shutting_down:
            raise StoreError("Dodona is shutting down.", hint="Ask again when it is back.")
        asked = await self._storage.runs.submit(asking)
        for run_id in asked.interrupted:
            if (running := self._running.get(run_id)) is not None:
                running.cancel()
        if asked.driven is not None:
            self._begin(asked.driven)
        else:
            self._waiting.add(asked.conversation_id)
            self._look_on()
        return asked

    def feed(self, run_id: int) -> ChunkFeed | None:
        """The feed of a run that this process drives."""
        running = self._running.get(run_id)
        return None if running is None else running.feed

    async def wait_for_change(self) -> None:
        """Wait until a run begins or ends here, or others may have done something."""
        self._stirred.clear()
        try:
            async with asyncio.timeout(LOOK_EVERY):
                await self._stirred.wait()
        except TimeoutError:
            pass

    async def cancel(self, user_id: str, run_id: int) -> RunStatus:
        """Ask for the end of a run: durably first, then at once if it is ours."""
        status = await self._storage.runs.cancel(user_id, run_id)
        running = self._running.get(run_id)
        if running is not None:
            running.cancel()
        self._stir()
        return status

    @property
    def runs_now(self) -> int:
        """How many runs this process drives."""
        return len(self._running)

    def start(self) -> None:
        """Begin to look after lanes: take up what a process that died has left."""
        self._look_on()

    async def shutdown(self, patience: float) -> int:
        """Take nothing more; wait for runs to end, then leave the rest to be resumed."""
        self.is_shutting_down = True
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait([self._looking])
        if self._running and patience > 0:
            await asyncio.wait(self._tasks(), timeout=patience)
        left = len(self._running)
        for running in tuple(self._running.values()):
            running.release()
        try:
            while tasks := [*self._tasks(), *self._takers]:
                await asyncio.wait(tasks)
            # Who serves does it after the next answer; who was asked once gets no other chance.
            if self._post_run and not self._serves:
                await asyncio.wait(self._post_run.values(), timeout=LAST_PATIENCE)
        finally:
            await self._leave_afters()
        return left

    async def _leave_afters(self) -> None:
        for task in self._post_run.values():
            task.cancel()
        while self._post_run:
            await asyncio.wait(self._post_run.values())

    def _tasks(self) -> list[asyncio.Task[None]]:
        return [running.task for running in self._running.values() if running.task is not None]

    # -- driving -------------------------------------------------------------------------------

    def _begin(self, driven: ClaimedRun) -> None:
        claim = driven.claim
        if self.is_shutting_down:
            self._storage.runs.release(claim)
            return
        user_id = driven.brief.context.user_id
        feed = ChunkFeed(claim.run_id, claim.attempt, user_id, hide=self._hide)
        running = _Running(claim, feed)
        self._running[claim.run_id] = running
        running.task = asyncio.get_running_loop().create_task(self._work(driven, running))
        self._look_on()
        self._stir()

    async def _work(self, driven: ClaimedRun, running: _Running) -> None:
        claim = driven.claim
        trail.run_id.set(claim.run_id)
        after: PostRunTask | None = None
        try:
            after = await self._drive(driven, running.feed, running.hold)
        except Exception:  # noqa: BLE001 - the boundary of a task root
            _log.exception("run %s could not be driven", claim.run_id)
            self._storage.runs.release(claim)
        finally:
            del self._running[claim.run_id]
            self._stir()
        if after is not None:
            self._begin_after(claim.conversation_id, after)
        if claim.conversation_id in self._waiting and not self.is_shutting_down:
            self._claim_soon(claim.conversation_id)

    def _begin_after(self, conversation_id: int, after: PostRunTask) -> None:
        """Do what is left to do, unless the same is being done: then the next run brings it."""
        if conversation_id in self._post_run or (self.is_shutting_down and self._serves):
            return
        task = asyncio.get_running_loop().create_task(self._do_after(conversation_id, after))
        self._post_run[conversation_id] = task
        task.add_done_callback(lambda _: self._post_run.pop(conversation_id))

    async def _do_after(self, conversation_id: int, after: PostRunTask) -> None:
        try:
            await after()
        except Exception:  # noqa: BLE001 - the boundary of a task root
            _log.exception("after a run of conversation %s something failed", conversation_id)

    def _claim_soon(self, conversation_id: int) -> None:
        """Take the next run of a lane, in a task that leaving waits for."""
        loop = asyncio.get_running_loop()
        # In a context of its own: the run that it takes is not of the request before.
        task = loop.create_task(self._claim_next(conversation_id), context=trail.detached())
        self._takers.add(task)
        task.add_done_callback(self._takers.discard)

    async def _claim_next(self, conversation_id: int) -> None:
        """Drive the next run of a lane, if it is to be had."""
        try:
            found = await self._storage.runs.claim_next(
                conversation_id, token_budget=self._conduct.token_budget
            )
        except StoreError as error:
            _log.warning("lane %s cannot be looked at: %s", conversation_id, error)
            return
        if found is None:
            self._waiting.discard(conversation_id)
        elif isinstance(found, ClaimedRun):
            self._begin(found)

    def _stir(self) -> None:
        self._stirred.set()

    # -- looking after what others do ------------------------------------------------------------

    def _look_on(self) -> None:
        if self.is_shutting_down:
            return
        if self._looking is None or self._looking.done():
            loop = asyncio.get_running_loop()
            self._looking = loop.create_task(self._poll(), context=trail.detached())

    async def _poll(self) -> None:
        """While there is something to look after."""
        around = 0.0
        loop = asyncio.get_running_loop()
        while self._serves or self._waiting or self._running:
            if self._serves and loop.time() >= around:
                around = loop.time() + LOOK_AROUND_EVERY
                await self._find_orphans()
            await self._poll_lanes()
            await self._poll_cancellations()
            await asyncio.sleep(LOOK_EVERY)

    async def _find_orphans(self) -> None:
        try:
            self._waiting.update(await self._storage.runs.open_lanes())
        except StoreError as error:
            _log.warning("the lanes cannot be looked at: %s", error)

    async def _poll_lanes(self) -> None:
        ours = {running.claim.conversation_id for running in self._running.values()}
        for conversation_id in sorted(self._waiting - ours):
            await self._claim_next(conversation_id)

    async def _poll_cancellations(self) -> None:
        """Cancel what another process was asked to cancel."""
        if not self._running:
            return
        try:
            wished = await self._storage.runs.cancel_requested(list(self._running))
        except StoreError as error:
            _log.warning("wishes to cancel cannot be read: %s", error)
            return
        for run_id in wished:
            if (running := self._running.get(run_id)) is not None:
                running.cancel()
