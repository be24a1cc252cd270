"""The local engine: executes runs in this process, in the order of their lanes.

Queued runs and claims are in the store, not in memory: processes share lanes, and if a process
dies, another one resumes its runs.
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
from dodona.telemetry import log_context

RELEASED: Final = "left"
POLL_SECONDS: Final = 0.25  # for lanes claimed by other processes, and for cancel requests
ORPHAN_POLL_SECONDS: Final = 5.0  # for runs whose process has died
SHUTDOWN_POST_RUN_TIMEOUT_SECONDS: Final = 30.0  # for background work of a one-shot command

_log = logging.getLogger(__name__)

ExecuteRun = Callable[[ClaimedRun, ChunkFeed, OnStarted], Awaitable[PostRunTask | None]]


@dataclass(slots=True)
class _ActiveRun:
    """A run of this process. `handle` is set when its tree starts."""

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

    def hand_over(self) -> None:
        """Stop without ending the run. The journal goes first, so the stop is not recorded."""
        assert self.task is not None
        if self.handle is None:
            self.task.cancel()
            return
        self.handle.journal.stop_recording()
        self.handle.run.cancel(RELEASED)


class LocalEngine:
    """Starts runs in lane order, cancels them, and wakes waiting readers."""

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
        self._waiting_conversations: set[int] = set()  # with a queued run
        self._changed = asyncio.Event()  # a run has started or ended
        self._poll_task: asyncio.Task[None] | None = None
        self._claim_tasks: set[asyncio.Task[None]] = set()
        self._post_run_tasks: dict[int, asyncio.Task[None]] = {}  # one per conversation
        self.is_shutting_down = False

    async def submit(self, request: RunRequest) -> SubmitReceipt:
        """Accept a run request, and start the run if its lane is free."""
        if self.is_shutting_down:
            raise StoreError("Dodona is shutting down.", hint="Try again after the restart.")
        receipt = await self._storage.runs.submit(request)
        for run_id in receipt.interrupted_ids:
            if (running := self._active_runs.get(run_id)) is not None:
                running.cancel()
        if receipt.claimed is not None:
            self._start_run(receipt.claimed)
        else:
            self._waiting_conversations.add(receipt.conversation_id)
            self._ensure_polling()
        return receipt

    def find_feed(self, run_id: int) -> ChunkFeed | None:
        """The feed of a run in this process; None if the run is not active here."""
        running = self._active_runs.get(run_id)
        return None if running is None else running.feed

    async def wait_for_change(self) -> None:
        """Wait until a run starts or ends here, or until it is time to poll other processes."""
        self._changed.clear()
        try:
            async with asyncio.timeout(POLL_SECONDS):
                await self._changed.wait()
        except TimeoutError:
            pass

    async def cancel(self, user_id: str, run_id: int) -> RunStatus:
        """Request cancellation: durably in the store, then directly if the run is active here."""
        status = await self._storage.runs.cancel(user_id, run_id)
        running = self._active_runs.get(run_id)
        if running is not None:
            running.cancel()
        self._notify_change()
        return status

    @property
    def active_run_count(self) -> int:
        """Number of runs active in this process."""
        return len(self._active_runs)

    def start(self) -> None:
        """Start polling, so that runs of dead processes are resumed."""
        self._ensure_polling()

    async def shutdown(self, timeout_seconds: float) -> int:
        """Accept no more runs, wait for active ones, and release the rest to be resumed later.

        Returns the number of released runs.
        """
        self.is_shutting_down = True
        if self._poll_task is not None:
            self._poll_task.cancel()
            await asyncio.wait([self._poll_task])
        if self._active_runs and timeout_seconds > 0:
            await asyncio.wait(self._active_tasks(), timeout=timeout_seconds)
        released_count = len(self._active_runs)
        for running in tuple(self._active_runs.values()):
            running.hand_over()
        try:
            while tasks := [*self._active_tasks(), *self._claim_tasks]:
                await asyncio.wait(tasks)
            # A server compresses after the next answer; a one-shot command must do it now.
            if self._post_run_tasks and not self._is_server:
                await asyncio.wait(
                    self._post_run_tasks.values(), timeout=SHUTDOWN_POST_RUN_TIMEOUT_SECONDS
                )
        finally:
            await self._cancel_post_run_tasks()
        return released_count

    async def _cancel_post_run_tasks(self) -> None:
        for task in self._post_run_tasks.values():
            task.cancel()
        while self._post_run_tasks:
            await asyncio.wait(self._post_run_tasks.values())

    def _active_tasks(self) -> list[asyncio.Task[None]]:
        return [running.task for running in self._active_runs.values() if running.task is not None]

    # -- execution -----------------------------------------------------------------------------

    def _start_run(self, claimed: ClaimedRun) -> None:
        claim = claimed.claim
        if self.is_shutting_down:
            self._storage.runs.release_claim(claim)
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
        log_context.run_id.set(claim.run_id)
        post_run: PostRunTask | None = None
        try:
            post_run = await self._execute_run(claimed, running.feed, running.attach)
        except Exception:  # noqa: BLE001 - last resort: nothing above catches it
            _log.exception("run %s crashed", claim.run_id)
            self._storage.runs.release_claim(claim)
        finally:
            del self._active_runs[claim.run_id]
            self._notify_change()
        if post_run is not None:
            self._start_post_run(claim.conversation_id, post_run)
        if claim.conversation_id in self._waiting_conversations and not self.is_shutting_down:
            self._start_next_run_soon(claim.conversation_id)

    def _start_post_run(self, conversation_id: int, post_run: PostRunTask) -> None:
        """Start background work, unless it is active already: the next run will plan it again."""
        if conversation_id in self._post_run_tasks or (self.is_shutting_down and self._is_server):
            return
        task = asyncio.get_running_loop().create_task(self._do_post_run(conversation_id, post_run))
        self._post_run_tasks[conversation_id] = task
        task.add_done_callback(lambda _: self._post_run_tasks.pop(conversation_id))

    async def _do_post_run(self, conversation_id: int, post_run: PostRunTask) -> None:
        try:
            await post_run()
        except Exception:  # noqa: BLE001 - last resort: nothing above catches it
            _log.exception("background work of conversation %s failed", conversation_id)

    def _start_next_run_soon(self, conversation_id: int) -> None:
        """Claim the next run of a lane, in a task that `shutdown` waits for."""
        loop = asyncio.get_running_loop()
        # With a fresh log context: the next run does not belong to the previous request.
        task = loop.create_task(
            self._start_next_run(conversation_id), context=log_context.detached_context()
        )
        self._claim_tasks.add(task)
        task.add_done_callback(self._claim_tasks.discard)

    async def _start_next_run(self, conversation_id: int) -> None:
        """Start the next run of a lane, if it can be claimed."""
        try:
            claimed = await self._storage.runs.claim_next(
                conversation_id, token_budget=self._policy.token_budget
            )
        except StoreError as error:
            _log.warning("could not claim a run in lane %s: %s", conversation_id, error)
            return
        if claimed is None:
            self._waiting_conversations.discard(conversation_id)
        elif isinstance(claimed, ClaimedRun):
            self._start_run(claimed)

    def _notify_change(self) -> None:
        self._changed.set()

    # -- polling the store for changes by other processes ----------------------------------------

    def _ensure_polling(self) -> None:
        if self.is_shutting_down:
            return
        if self._poll_task is None or self._poll_task.done():
            loop = asyncio.get_running_loop()
            self._poll_task = loop.create_task(self._poll(), context=log_context.detached_context())

    async def _poll(self) -> None:
        """Poll while there is work; a server polls until it shuts down."""
        next_orphan_poll = 0.0
        loop = asyncio.get_running_loop()
        while self._is_server or self._waiting_conversations or self._active_runs:
            if self._is_server and loop.time() >= next_orphan_poll:
                next_orphan_poll = loop.time() + ORPHAN_POLL_SECONDS
                await self._add_claimable_lanes()
            await self._start_waiting_runs()
            await self._apply_cancel_requests()
            await asyncio.sleep(POLL_SECONDS)

    async def _add_claimable_lanes(self) -> None:
        try:
            self._waiting_conversations.update(await self._storage.runs.claimable_lanes())
        except StoreError as error:
            _log.warning("could not poll for claimable lanes: %s", error)

    async def _start_waiting_runs(self) -> None:
        active = {running.claim.conversation_id for running in self._active_runs.values()}
        for conversation_id in sorted(self._waiting_conversations - active):
            await self._start_next_run(conversation_id)

    async def _apply_cancel_requests(self) -> None:
        """Cancel runs whose cancellation was requested in another process."""
        if not self._active_runs:
            return
        try:
            run_ids = await self._storage.runs.find_cancel_requested(list(self._active_runs))
        except StoreError as error:
            _log.warning("could not poll for cancel requests: %s", error)
            return
        for run_id in run_ids:
            if (running := self._active_runs.get(run_id)) is not None:
                running.cancel()
