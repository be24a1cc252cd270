"""The single writer of a SQLite file in a process: a thread that commits in groups.

Operations that arrive during a commit go into the next one together, so the cost of durability is
paid per group. If an operation fails, the group is run again with each operation in a savepoint:
the failed one is rolled back and the others succeed. If the transaction itself is lost (a full
disk), the whole group fails, because nothing of it is on the disk.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, Final, TypeVar

from dodona.concurrency.workers import OnOrphaned, post_to_loop, settle_future
from dodona.core.errors import StoreError
from dodona.store.db.database import StoreOperation, Transaction, log_orphaned

T = TypeVar("T")

_log = logging.getLogger(__name__)

SYNC_FULL: Final = "PRAGMA synchronous = FULL"
SYNC_NORMAL: Final = "PRAGMA synchronous = NORMAL"

_MAX_GROUP_SIZE = 256
_LOCK_TIMEOUT_SECONDS = 30.0  # how long to wait for another process
# SQLite's lock is not fair. A busy writer pauses regularly, and a waiting one polls more often than
# the pause lasts, so that two processes both make progress.
_BURST_SECONDS = 0.05
_PAUSE_SECONDS = 0.004
_LOCK_POLL_SECONDS = 0.001


@dataclass(slots=True, eq=False)
class _Job:
    operation: StoreOperation[Any]
    future: asyncio.Future[Any]
    loop: asyncio.AbstractEventLoop
    soft: bool
    on_orphaned: OnOrphaned
    result: Any = None
    error: BaseException | None = None


class Writer:
    """Runs operations in the order of submission."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        *,
        transaction: Callable[[sqlite3.Connection], Transaction],
        translate: Callable[[sqlite3.Error], StoreError],
        is_durable: bool = False,
    ) -> None:
        self._connection = connection
        self._transaction = transaction(connection)
        self._translate = translate
        self._is_durable = is_durable  # do commits survive a power failure, unless they are soft?
        self._is_sync_full = is_durable  # the current setting of the connection
        self._queue: SimpleQueue[_Job | None] = SimpleQueue()
        self._burst_started_at = time.monotonic()
        self._is_closed = False
        self._thread = threading.Thread(
            target=self._run_thread, name="dodona-store-writer", daemon=True
        )
        self._thread.start()

    def submit(
        self,
        operation: StoreOperation[T],
        *,
        soft: bool = False,
        on_orphaned: OnOrphaned = log_orphaned,
    ) -> asyncio.Future[T]:
        """Queue an operation. A soft one does not wait for the disk, unless its group does.

        Cancelling the future does not cancel the operation.
        """
        if self._is_closed:
            raise StoreError("the store is closed.")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._queue.put(_Job(operation, future, loop, soft, on_orphaned))
        return future

    def close(self) -> None:
        """Finish all queued operations, then stop. Blocks until then."""
        self._is_closed = True
        self._queue.put(None)
        self._thread.join()

    def _run_thread(self) -> None:
        is_open = True
        while is_open:
            jobs, is_open = self._next_group()
            if jobs:
                self._run_safely(jobs)
                _deliver_results(jobs)
        self._reject_late()
        self._connection.close()

    def _reject_late(self) -> None:
        """Fail operations that were submitted while closing."""
        late: list[_Job] = []
        while not self._queue.empty():
            if (job := self._queue.get()) is not None:
                job.error = StoreError("the store is closed.")
                late.append(job)
        _deliver_results(late)

    def _next_group(self) -> tuple[list[_Job], bool]:
        """Return all queued jobs, and False once there will be no more."""
        if self._queue.empty():
            job = self._queue.get()
            self._burst_started_at = time.monotonic()
        else:
            self._yield_to_other_processes()
            job = self._queue.get()
        jobs: list[_Job] = []
        while job is not None:
            jobs.append(job)
            if len(jobs) == _MAX_GROUP_SIZE or self._queue.empty():
                return jobs, True
            job = self._queue.get()  # cannot block: only this thread consumes the queue
        return jobs, False

    def _yield_to_other_processes(self) -> None:
        if time.monotonic() - self._burst_started_at > _BURST_SECONDS:
            time.sleep(_PAUSE_SECONDS)
            self._burst_started_at = time.monotonic()

    def _run_safely(self, jobs: list[_Job]) -> None:
        """Run a group; a bug fails the group and is logged, but does not end the thread."""
        try:
            self._run_group(jobs)
        except Exception as error:  # noqa: BLE001 - last resort: nothing above catches it
            _log.exception("the store's writer has a bug")
            for job in jobs:
                job.error = job.error or error

    def _run_group(self, jobs: list[_Job]) -> None:
        try:
            if self._is_durable:
                self._set_sync(full=not all(job.soft for job in jobs))
            self._begin_immediate()
            if not self._run_without_savepoints(jobs):
                self._begin_immediate()
                for job in jobs:
                    self._run_in_savepoint(job)
            if self._connection.in_transaction:
                self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._fail_group(jobs, self._translate(error))

    def _run_without_savepoints(self, jobs: list[_Job]) -> bool:
        """Run a group without savepoints, which cost more than most operations.

        If one of several operations fails, everything is rolled back and the result is False: run
        the group again with savepoints. If the only operation fails, it gets its error.
        """
        connection = self._connection
        for job in jobs:
            try:
                job.result = job.operation(self._transaction)
                self._require_open_transaction()
            except BaseException as error:  # noqa: BLE001 - every error belongs to the caller
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                if len(jobs) > 1:
                    return False
                job.error = self._translate(error) if isinstance(error, sqlite3.Error) else error
        return True

    def _require_open_transaction(self) -> None:
        """Raise if an operation has ended the transaction: the next one would autocommit."""
        if not self._connection.in_transaction:
            raise sqlite3.OperationalError("the transaction was lost")

    def _set_sync(self, *, full: bool) -> None:
        """Choose whether the next commit waits for the disk."""
        if full is not self._is_sync_full:
            self._connection.execute(SYNC_FULL if full else SYNC_NORMAL)
            self._is_sync_full = full

    def _begin_immediate(self) -> None:
        """Take the write lock, waiting while another process holds it."""
        deadline = time.monotonic() + _LOCK_TIMEOUT_SECONDS
        while True:
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                    raise
                if time.monotonic() > deadline:
                    raise
            time.sleep(_LOCK_POLL_SECONDS)

    def _run_in_savepoint(self, job: _Job) -> None:
        """Run one operation in a savepoint; raise if the group's transaction was lost."""
        execute = self._connection.execute
        execute("SAVEPOINT one")
        try:
            job.result = job.operation(self._transaction)
        except BaseException as error:  # every error belongs to the caller
            job.error = self._translate(error) if isinstance(error, sqlite3.Error) else error
            if isinstance(error, sqlite3.Error) and not self._connection.in_transaction:
                raise
            self._require_open_transaction()
            execute("ROLLBACK TO one")
        execute("RELEASE one")

    def _fail_group(self, jobs: list[_Job], error: StoreError) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")
        for job in jobs:
            job.error = job.error or error


def _deliver_results(jobs: list[_Job]) -> None:
    """Deliver the results, in one call for each event loop."""
    if len(jobs) == 1:
        post_to_loop(jobs[0].loop, _resolve_futures, jobs)
        return
    loops = {id(job.loop): job.loop for job in jobs}
    for loop in loops.values():
        post_to_loop(loop, _resolve_futures, [job for job in jobs if job.loop is loop])


def _resolve_futures(jobs: list[_Job]) -> None:
    for job in jobs:
        settle_future(job.future, job.result, job.error, job.on_orphaned)
