"""The health of the store: current values for metrics, and a probe that writes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from secrets import token_hex
from time import monotonic, time_ns
from typing import Final

from sqlalchemy import Double, bindparam, case, cast, delete, distinct, func, select

from dodona.core.domain.budgets import ALL_TIME, Budget, day_and_month
from dodona.core.errors import RunFenced, StoreError, WriteRejected
from dodona.store.billing.budgets import budget_from_row
from dodona.store.db.database import Database, Transaction
from dodona.store.db.statements import insert_into, statement
from dodona.store.schema import IS_QUEUED, budgets, runs, tree_globals

# No user has an empty name: the probe's row belongs to none.
PROBE_SCOPE: Final = {"user_id": "", "project_id": "", "agent_id": ""}
TIMEOUT_SECONDS: Final = 2.0  # for one small commit
CACHE_SECONDS: Final = 1.0  # how long a result is cached, so that frequent checks are cheap
FAILURE_SECONDS: Final = 5.0  # how long the store counts as broken after a write has failed
_PROBE_BYTES: Final = 32 << 10  # about as many pages as a question needs

_INSERT_PROBE = insert_into(tree_globals, *PROBE_SCOPE, "key", "value_json")
_DELETE_OLD_PROBES = statement(
    delete(tree_globals).where(
        *(tree_globals.c[name] == bindparam(name) for name in PROBE_SCOPE),
        tree_globals.c.key != bindparam("new_key"),
    )
)

# These kinds have many budgets, with the scope KIND:NAME; the others have one per period.
SCOPED_KINDS: Final = ("session", "agent", "user")

_used_or_reserved = cast(budgets.c.used + budgets.c.held, Double)
_ratio = case((budgets.c.ceiling > 0, _used_or_reserved / budgets.c.ceiling), else_=1.0)
_SELECT_MAX_RATIOS = statement(
    select(budgets.c.unit, func.max(_ratio))
    .where(budgets.c.scope.like(bindparam("pattern")), budgets.c.period == bindparam("period"))
    .group_by(budgets.c.unit)
)
_SELECT_CURRENT = statement(
    select(*budgets.c)
    .where(budgets.c.period.in_([bindparam("day"), bindparam("month")]))
    .order_by(budgets.c.period, budgets.c.scope, budgets.c.unit)
    .limit(100)
)

_COUNT_WAITING_LANES = statement(
    select(func.count(distinct(runs.c.conversation_id))).where(IS_QUEUED)
)


class Gauges:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def max_usage_ratios(self, at: float) -> dict[tuple[str, str], float]:
        """Return, by kind and unit, the highest used and reserved share of a ceiling.

        The share is 1 if the ceiling is 0.
        """
        kinds = tuple(_kind_periods(at))

        def read(tx: Transaction) -> dict[tuple[str, str], float]:
            return {
                (kind, unit): ratio
                for kind, pattern, period in kinds
                for unit, ratio in tx.fetch_all(_SELECT_MAX_RATIOS, pattern=pattern, period=period)
            }

        return await self._database.read(read)

    async def count_waiting_lanes(self) -> int:
        """Count the conversations with a queued run, in all processes."""
        row = await self._database.read(lambda tx: tx.fetch_one(_COUNT_WAITING_LANES))
        assert row is not None
        return row[0]

    async def current_budgets(self, at: float) -> list[Budget]:
        """Return the budgets of the day and of the month."""
        day, month = day_and_month(at)
        rows = await self._database.read(
            lambda tx: tx.fetch_all(_SELECT_CURRENT, day=day, month=month)
        )
        return [budget_from_row(row) for row in rows]


def _kind_periods(at: float) -> Iterator[tuple[str, str, str]]:
    day, month = day_and_month(at)
    yield from ((kind, f"{kind}:%", ALL_TIME) for kind in SCOPED_KINDS)
    yield "daily", "daily", day
    yield "monthly", "monthly", month


def _write_probe(tx: Transaction) -> None:
    key = str(time_ns())
    tx.lock_name("write probe")  # of concurrent processes, none waits for the rows of another
    # A new row before the old one goes: like a question, it needs room in the database.
    tx.execute(
        _INSERT_PROBE, **PROBE_SCOPE, key=key, value_json=f'"{token_hex(_PROBE_BYTES // 2)}"'
    )
    tx.execute(_DELETE_OLD_PROBES, **PROBE_SCOPE, new_key=key)


class WriteProbe:
    """Checks that a database is writable, with at most one write in progress.

    A write of the application that fails is as good as a failed check: other data may still fit.
    """

    def __init__(
        self,
        database: Database,
        *,
        timeout_seconds: float = TIMEOUT_SECONDS,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._database = database
        self._timeout_seconds = timeout_seconds
        self._clock = clock
        self._write: asyncio.Future[None] | None = None
        self._error: StoreError | None = None  # the last result
        self._valid_until = float("-inf")  # then the result is outdated

    def record_failure(self, error: BaseException) -> None:
        """Record that a write has failed. No effect if the failure says nothing about others."""
        if isinstance(error, StoreError) and not isinstance(error, RunFenced | WriteRejected):
            self._error, self._valid_until = error, self._clock() + FAILURE_SECONDS

    async def check(self) -> None:
        """Raise StoreError if a write fails, takes too long, or has failed seconds ago."""
        if self._clock() >= self._valid_until:
            error = await self._try_write()
            if self._clock() >= self._valid_until:  # else a write has failed in the meantime
                self._error, self._valid_until = error, self._clock() + CACHE_SECONDS
        if self._error is not None:
            raise StoreError(self._error.message, hint=self._error.hint)

    async def _try_write(self) -> StoreError | None:
        if self._write is None or self._write.done():
            self._write = self._database.submit(_write_probe, soft=True)
        try:
            async with asyncio.timeout(self._timeout_seconds):
                await asyncio.shield(self._write)
        except TimeoutError:
            return StoreError(
                f"the store has not completed a write within {self._timeout_seconds:g} seconds.",
                hint="Is it locked by another program, or is its disk slow or full?",
            )
        except StoreError as error:
            return error
        return None
