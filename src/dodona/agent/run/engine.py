"""The local engine: executes runs in this process, in the order of their lanes.

Queued runs and claims are in the store, not in memory: processes share lanes, and if a process
dies, another one resumes its runs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Final

from dodona.agent.run.compressor import PostRunTask
from dodona.agent.run.driver import Driver, RunHandle
from dodona.agent.run_context.chunk_feed import ChunkFeed
from dodona.agent.run_context.deps import RunPolicy
from dodona.core.domain.conversations.conversation import ClaimedRun, RunRequest, RunStatus
from dodona.core.errors import StoreError
from dodona.store import Store
from dodona.telemetry import log_context

POLL_SECONDS: Final = 0.25  # for lanes claimed by other processes, and for cancel requests
ORPHAN_POLL_SECONDS: Final = 5.0  # for runs whose process has died
SHUTDOWN_POST_RUN_TIMEOUT_SECONDS: Final = 30.0  # for background work of a one-shot command

_log = logging.getLogger(__name__)


class LocalEngine:
    """Starts runs in lane order, cancels them, and wakes waiting readers."""

    def __init__(
        self,
        storage: Store,
        driver: Driver,
        *,
        is_server: bool,
        policy: RunPolicy,
    ) -> None:
        self._storage = storage
        self._policy = policy
        self._driver = driver
        self._is_server = is_server
        self._active_runs: dict[int, RunHandle] = {}
        # Conversations with a queued run, and the last run in them to start here; None for all.
        # A one-shot command ends after its own run, so it starts none that comes later.
        self._waiting_conversations: dict[int, int | None] = {}
        self._changed = asyncio.Event()  # a run has started or ended
        self._poll_task: asyncio.Task[None] | None = None
        self._claim_tasks: set[asyncio.Task[None]] = set()
        self._post_run_tasks: dict[int, asyncio.Task[None]] = {}  # one per conversation
        self.is_shutting_down = False

    async def submit(self, request: RunRequest) -> int:
        """Accept a question, and start its run if the lane is free. Return the ID of the run."""
        if self.is_shutting_down:
            raise StoreError("Dodona is shutting down.", hint="Try again after the restart.")
        run = await self._storage.runs.submit(request)
        if isinstance(run, ClaimedRun):
            self._start_run(run)
        else:
            self._cancel_active(run.interrupted_ids)
            last_id = None if self._is_server else run.run_id
            self._waiting_conversations[run.conversation_id] = last_id
            self._ensure_polling()
        return run.run_id

    def find_feed(self, run_id: int) -> ChunkFeed | None:
        """The feed of a run in this process; None if the run is not active here."""
        handle = self._active_runs.get(run_id)
        return None if handle is None else handle.feed

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
        self._cancel_active([run_id])
        self._notify_change()
        return status

    def _cancel_active(self, run_ids: Iterable[int]) -> None:
        """Cancel those of the runs that are active in this process."""
        for run_id in run_ids:
            if (handle := self._active_runs.get(run_id)) is not None:
                handle.cancel()

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
        for handle in tuple(self._active_runs.values()):
            handle.release()
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

    def _active_tasks(self) -> list[asyncio.Task[PostRunTask | None]]:
        return [handle.task for handle in self._active_runs.values()]

    # -- execution -----------------------------------------------------------------------------

    def _start_run(self, claimed: ClaimedRun) -> None:
        if self.is_shutting_down:
            self._storage.runs.release_claim(claimed)
            return
        handle = self._driver.start(claimed)
        self._active_runs[claimed.run_id] = handle
        handle.task.add_done_callback(lambda _: self._on_run_ended(handle))
        self._ensure_polling()
        self._notify_change()

    def _on_run_ended(self, handle: RunHandle) -> None:
        claimed, conversation_id = handle.claimed, handle.claimed.conversation_id
        handle.feed.close()  # also if the task was cancelled before it began
        del self._active_runs[claimed.run_id]
        self._notify_change()
        post_run = None if handle.task.cancelled() else handle.task.result()
        if post_run is not None:
            self._start_post_run(claimed, post_run)
        if conversation_id in self._waiting_conversations and not self.is_shutting_down:
            self._start_next_run_soon(conversation_id)

    def _start_post_run(self, claimed: ClaimedRun, post_run: PostRunTask) -> None:
        """Start background work, unless it is active already: the next run will plan it again."""
        conversation_id = claimed.conversation_id
        if conversation_id in self._post_run_tasks or (self.is_shutting_down and self._is_server):
            return
        task = asyncio.get_running_loop().create_task(self._do_post_run(claimed, post_run))
        self._post_run_tasks[conversation_id] = task
        task.add_done_callback(lambda _: self._post_run_tasks.pop(conversation_id))

    async def _do_post_run(self, claimed: ClaimedRun, post_run: PostRunTask) -> None:
        log_context.run_id.set(claimed.run_id)
        try:
            await post_run()
        except Exception:  # noqa: BLE001 - last resort: nothing above catches it
            conversation_id = claimed.conversation_id
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
        if conversation_id not in self._waiting_conversations:
            return  # found empty meanwhile
        try:
            claimed = await self._storage.runs.claim_next(
                conversation_id,
                last_id=self._waiting_conversations[conversation_id],
                token_budget=self._policy.token_budget,
            )
        except StoreError as error:
            _log.warning("could not claim a run in lane %s: %s", conversation_id, error)
            return
        if claimed is None:
            self._waiting_conversations.pop(conversation_id, None)
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
            lanes = await self._storage.runs.claimable_lanes()
            self._waiting_conversations.update(dict.fromkeys(lanes))
        except StoreError as error:
            _log.warning("could not poll for claimable lanes: %s", error)

    async def _start_waiting_runs(self) -> None:
        active = {each.claimed.conversation_id for each in self._active_runs.values()}
        for conversation_id in sorted(self._waiting_conversations.keys() - active):
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
        self._cancel_active(run_ids)
