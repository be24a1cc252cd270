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
    SubmitReceipt,
)
from dodona.core.errors import StoreError
from dodona.store import Store
from dodona.telemetry import log_context as trail

RELEASED: Final = "left"
POLL_SECONDS: Final = 0.25  # seconds, at lanes that others hold and at wishes to cancel
ORPHAN_POLL_SECONDS: Final = 5.0  # … for runs whose process has died
POST_RUN_TIMEOUT_SECONDS: Final = (
    30.0  # … for what is left to do after the answer that was asked for
)

_log = logging.getLogger(__name__)

ExecuteRun = Callable[[ClaimedRun, ChunkFeed, OnStarted], Awaitable[PostRunTask | None]]


@dataclass(slots=True)
class _ActiveRun:
    """A run of this process. `held` is its tree, once that has begun."""

    claim: Claim
    feed: ChunkFeed
    task: asyncio.Task[None] | None = None
    handle: RunHandle | None = None
    is_cancelled: bool = False

    def attach(self, handle: RunHandle) -> None:
        self.handle = handle
        if self.is_cancelled:
            handle.cancel()

    def cancel(self) -> None:
        self.is_cancelled = True
        if self.handle is not None:
            self.handle.cancel()

    def release(self) -> None:
        """Stop without ending: the journal first, so that nothing of the stop is written."""
        assert self.task is not None
        if self.handle is None:
            self.task.cancel()
            return
        self.handle.journal.release()
        self.handle.run.cancel(RELEASED)


class LocalEngine:
    """Dispatches, orders and wakes."""

    def __init__(
        self,
        storage: Store,
        execute_run: ExecuteRun,
        *,
        is_server: bool,
        policy: RunPolicy | None = None,
        redact: Redact = no_redaction,
    ) -> None:
        self._storage = storage
        self._policy = policy or RunPolicy()
        self._redact = redact
        self._execute_run = execute_run
        self._is_server = is_server
        self._active_runs: dict[int, _ActiveRun] = {}
        self._waiting_conversations: set[int] = set()  # conversations with a run of ours that waits
        self._changed = asyncio.Event()  # a run has begun or ended
        self._poll_task: asyncio.Task[None] | None = None
        self._claim_tasks: set[asyncio.Task[None]] = set()
        self._post_run_tasks: dict[int, asyncio.Task[None]] = {}  # by conversation: one at a time
        self.is_shutting_down = False

    async def submit(self, request: RunRequest) -> SubmitReceipt:
        """Take a question in, and drive it if its lane is free."""
        if self.is_shutting_down:
            raise StoreError("Dodona is shutting down.", hint="Ask again when it is back.")
        asked = await self._storage.runs.submit(request)
        for run_id in asked.interrupted_ids:
            if (running := self._active_runs.get(run_id)) is not None:
                running.cancel()
        if asked.claimed is not None:
            self._start_run(asked.claimed)
        else:
            self._waiting_conversations.add(asked.conversation_id)
            self._ensure_polling()
        return asked

    def feed(self, run_id: int) -> ChunkFeed | None:
        """The feed of a run that this process drives."""
        running = self._active_runs.get(run_id)
        return None if running is None else running.feed

    async def wait_for_change(self) -> None:
        """Wait until a run begins or ends here, or others may have done something."""
        self._changed.clear()
        try:
            async with asyncio.timeout(POLL_SECONDS):
                await self._changed.wait()
        except TimeoutError:
            pass

    async def cancel(self, user_id: str, run_id: int) -> RunStatus:
        """Ask for the end of a run: durably first, then at once if it is ours."""
        status = await self._storage.runs.cancel(user_id, run_id)
        running = self._active_runs.get(run_id)
        if running is not None:
            running.cancel()
        self._notify_change()
        return status

    @property
    def active_count(self) -> int:
        """How many runs this process drives."""
        return len(self._active_runs)

    def start(self) -> None:
        """Begin to look after lanes: take up what a process that died has left."""
        self._ensure_polling()

    async def shutdown(self, timeout_seconds: float) -> int:
        """Take nothing more; wait for runs to end, then leave the rest to be resumed."""
        self.is_shutting_down = True
        if self._poll_task is not None:
            self._poll_task.cancel()
            await asyncio.wait([self._poll_task])
        if self._active_runs and timeout_seconds > 0:
            await asyncio.wait(self._active_tasks(), timeout=timeout_seconds)
        left = len(self._active_runs)
        for running in tuple(self._active_runs.values()):
            running.release()
        try:
            while tasks := [*self._active_tasks(), *self._claim_tasks]:
                await asyncio.wait(tasks)
            # Who serves does it after the next answer; who was asked once gets no other chance.
            if self._post_run_tasks and not self._is_server:
                await asyncio.wait(self._post_run_tasks.values(), timeout=POST_RUN_TIMEOUT_SECONDS)
        finally:
            await self._cancel_post_run_tasks()
        return left

    async def _cancel_post_run_tasks(self) -> None:
        for task in self._post_run_tasks.values():
            task.cancel()
        while self._post_run_tasks:
            await asyncio.wait(self._post_run_tasks.values())

    def _active_tasks(self) -> list[asyncio.Task[None]]:
        return [running.task for running in self._active_runs.values() if running.task is not None]

    # -- driving -------------------------------------------------------------------------------

    def _start_run(self, claimed: ClaimedRun) -> None:
        claim = claimed.claim
        if self.is_shutting_down:
            self._storage.runs.release(claim)
            return
        user_id = claimed.inputs.context.user_id
        feed = ChunkFeed(claim.run_id, claim.attempt, user_id, redact=self._redact)
        running = _ActiveRun(claim, feed)
        self._active_runs[claim.run_id] = running
        running.task = asyncio.get_running_loop().create_task(self._run_to_end(claimed, running))
        self._ensure_polling()
        self._notify_change()

    async def _run_to_end(self, claimed: ClaimedRun, running: _ActiveRun) -> None:
        claim = claimed.claim
        trail.run_id.set(claim.run_id)
        after: PostRunTask | None = None
        try:
            after = await self._execute_run(claimed, running.feed, running.attach)
        except Exception:  # noqa: BLE001 - the boundary of a task root
            _log.exception("run %s could not be driven", claim.run_id)
            self._storage.runs.release(claim)
        finally:
            del self._active_runs[claim.run_id]
            self._notify_change()
        if after is not None:
            self._start_post_run(claim.conversation_id, after)
        if claim.conversation_id in self._waiting_conversations and not self.is_shutting_down:
            self._claim_soon(claim.conversation_id)

    def _start_post_run(self, conversation_id: int, post_run: PostRunTask) -> None:
        """Do what is left to do, unless the same is being done: then the next run brings it."""
        if conversation_id in self._post_run_tasks or (self.is_shutting_down and self._is_server):
            return
        task = asyncio.get_running_loop().create_task(self._do_post_run(conversation_id, post_run))
        self._post_run_tasks[conversation_id] = task
        task.add_done_callback(lambda _: self._post_run_tasks.pop(conversation_id))

    async def _do_post_run(self, conversation_id: int, post_run: PostRunTask) -> None:
        try:
            await post_run()
        except Exception:  # noqa: BLE001 - the boundary of a task root
            _log.exception("after a run of conversation %s something failed", conversation_id)

    def _claim_soon(self, conversation_id: int) -> None:
        """Take the next run of a lane, in a task that leaving waits for."""
        loop = asyncio.get_running_loop()
        # In a context of its own: the run that it takes is not of the request before.
        task = loop.create_task(self._claim_next(conversation_id), context=trail.detached_context())
        self._claim_tasks.add(task)
        task.add_done_callback(self._claim_tasks.discard)

    async def _claim_next(self, conversation_id: int) -> None:
        """Drive the next run of a lane, if it is to be had."""
        try:
            found = await self._storage.runs.claim_next(
                conversation_id, token_budget=self._policy.token_budget
            )
        except StoreError as error:
            _log.warning("lane %s cannot be looked at: %s", conversation_id, error)
            return
        if found is None:
            self._waiting_conversations.discard(conversation_id)
        elif isinstance(found, ClaimedRun):
            self._start_run(found)

    def _notify_change(self) -> None:
        self._changed.set()

    # -- looking after what others do ------------------------------------------------------------

    def _ensure_polling(self) -> None:
        if self.is_shutting_down:
            return
        if self._poll_task is None or self._poll_task.done():
            loop = asyncio.get_running_loop()
            self._poll_task = loop.create_task(self._poll(), context=trail.detached_context())

    async def _poll(self) -> None:
        """While there is something to look after."""
        around = 0.0
        loop = asyncio.get_running_loop()
        while self._is_server or self._waiting_conversations or self._active_runs:
            if self._is_server and loop.time() >= around:
                around = loop.time() + ORPHAN_POLL_SECONDS
                await self._find_orphans()
            await self._poll_lanes()
            await self._poll_cancellations()
            await asyncio.sleep(POLL_SECONDS)

    async def _find_orphans(self) -> None:
        try:
            self._waiting_conversations.update(await self._storage.runs.claimable_lanes())
        except StoreError as error:
            _log.warning("the lanes cannot be looked at: %s", error)

    async def _poll_lanes(self) -> None:
        ours = {running.claim.conversation_id for running in self._active_runs.values()}
        for conversation_id in sorted(self._waiting_conversations - ours):
            await self._claim_next(conversation_id)

    async def _poll_cancellations(self) -> None:
        """Cancel what another process was asked to cancel."""
        if not self._active_runs:
            return
        try:
            wished = await self._storage.runs.filter_cancel_requested(list(self._active_runs))
        except StoreError as error:
            _log.warning("wishes to cancel cannot be read: %s", error)
            return
        for run_id in wished:
            if (running := self._active_runs.get(run_id)) is not None:
                running.cancel()
