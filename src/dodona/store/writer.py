"""The one writer of a SQLite file in a process: a thread that commits in groups.

What arrives while a commit is on its way to the disk goes into the next one together, so the
price of durability is paid per group. An operation that fails is rolled back to its savepoint
and the rest goes on; if the transaction itself is lost (a full disk), the whole group fails,
because nothing of it is on the disk.
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
from typing import Any, TypeVar

from dodona.core.errors import StoreError
from dodona.store.database import Operation, Transaction
from dodona.store.threads import hand_over, settle

T = TypeVar("T")

_log = logging.getLogger(__name__)

_GROUP = 256
_PATIENCE = 30.0  # seconds to wait for another process to let go
# SQLite's lock is not fair. A writer that is always busy pauses now and then, and one that waits
# looks more often than that pause lasts: so two processes both get on.
_BURST = 0.05
_PAUSE = 0.004
_LOOK_EVERY = 0.001


@dataclass(slots=True, eq=False)
class _Job:
    operation: Operation[Any]
    future: asyncio.Future[Any]
    loop: asyncio.AbstractEventLoop
    result: Any = None
    error: BaseException | None = None


class Writer:
    """Runs operations in the order in which they are given."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        *,
        transaction: Callable[[sqlite3.Connection], Transaction],
        translate: Callable[[sqlite3.Error], StoreError],
    ) -> None:
        self._connection = connection
        self._transaction = transaction(connection)
        self._translate = translate
        self._queue: SimpleQueue[_Job | None] = SimpleQueue()
        self._busy_since = time.monotonic()
        self._is_closed = False
        self._thread = threading.Thread(target=self._work, name="dodona-store-writer", daemon=True)
        self._thread.start()

    def submit(self, operation: Operation[T]) -> asyncio.Future[T]:
        if self._is_closed:
            raise StoreError("the store is closed.")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._queue.put(_Job(operation, future, loop))
        return future

    def close(self) -> None:
        """Finish what is queued, then end. Blocks until then."""
        self._is_closed = True
        self._queue.put(None)
        self._thread.join()

    def _work(self) -> None:
        open_ = True
        while open_:
            jobs, open_ = self._next_group()
            if jobs:
                self._run_whatever_happens(jobs)
                _deliver(jobs)
        self._refuse_late()
        self._connection.close()

    def _refuse_late(self) -> None:
        """Fail what came in at the very moment of closing."""
        late: list[_Job] = []
        while not self._queue.empty():
            if (job := self._queue.get()) is not None:
                job.error = StoreError("the store is closed.")
                late.append(job)
        _deliver(late)

    def _next_group(self) -> tuple[list[_Job], bool]:
        """All that is waiting; False once there will be no more."""
        if self._queue.empty():
            job = self._queue.get()
            self._busy_since = time.monotonic()
        else:
            self._be_fair()
            job = self._queue.get()
        jobs: list[_Job] = []
        while job is not None:
            jobs.append(job)
            if len(jobs) == _GROUP or self._queue.empty():
                return jobs, True
            job = self._queue.get()  # nobody else takes from the queue
        return jobs, False

    def _be_fair(self) -> None:
        if time.monotonic() - self._busy_since > _BURST:
            time.sleep(_PAUSE)
            self._busy_since = time.monotonic()

    def _run_whatever_happens(self, jobs: list[_Job]) -> None:
        """A bug fails the group, loudly; the thread lives, or nobody would get an answer."""
        try:
            self._run(jobs)
        except Exception as error:  # noqa: BLE001 - the boundary of a task root
            _log.exception("the store's writer has a bug")
            for job in jobs:
                job.error = job.error or error

    def _run(self, jobs: list[_Job]) -> None:
        try:
            self._begin()
            for job in jobs:
                self._attempt(job, alone=len(jobs) == 1)
            if self._connection.in_transaction:
                self._connection.execute("COMMIT")
            elif jobs[0].error is None:
                raise sqlite3.OperationalError("the transaction was lost")
        except sqlite3.Error as error:
            self._fail(jobs, self._translate(error))

    def _begin(self) -> None:
        """Take the write lock; wait while another process holds it."""
        patience = time.monotonic() + _PATIENCE
        while True:
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                    raise
                if time.monotonic() > patience:
                    raise
            time.sleep(_LOOK_EVERY)

    def _attempt(self, job: _Job, *, alone: bool) -> None:
        """Run one operation; raises when that cost the group its transaction."""
        execute = self._connection.execute
        if not alone:
            execute("SAVEPOINT one")
        try:
            job.result = job.operation(self._transaction)
        except BaseException as error:  # whatever it is, its caller gets it
            job.error = self._translate(error) if isinstance(error, sqlite3.Error) else error
            if not self._connection.in_transaction:
                if isinstance(error, sqlite3.Error):
                    raise
                raise sqlite3.OperationalError("the transaction was lost") from error
            execute("ROLLBACK" if alone else "ROLLBACK TO one")
        if not alone:
            execute("RELEASE one")

    def _fail(self, jobs: list[_Job], error: StoreError) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")
        for job in jobs:
            job.error = job.error or error


def _deliver(jobs: list[_Job]) -> None:
    """Hand the results over, in one call for each loop that waits."""
    loops = {id(job.loop): job.loop for job in jobs}
    for loop in loops.values():
        hand_over(loop, _settle_all, [job for job in jobs if job.loop is loop])


def _settle_all(jobs: list[_Job]) -> None:
    for job in jobs:
        settle(job.future, job.result, job.error)
