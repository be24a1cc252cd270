"""Current values for metrics: budget usage and queued lanes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from sqlalchemy import Double, bindparam, case, cast, distinct, func, select

from dodona.core.domain.budgets import ALL_TIME, BudgetUnit
from dodona.store.billing.budgets import Budget
from dodona.store.db.database import Database, Transaction
from dodona.store.db.statements import statement
from dodona.store.schema import IS_QUEUED, budgets, runs

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
        day = _day(at)
        rows = await self._database.read(
            lambda tx: tx.fetch_all(_SELECT_CURRENT, day=day, month=day[:7])
        )
        return [
            Budget(scope, period, BudgetUnit(unit), ceiling, used, reserved)
            for scope, period, unit, ceiling, used, reserved in rows
        ]


def _kind_periods(at: float) -> Iterator[tuple[str, str, str]]:
    day = _day(at)
    yield from ((kind, f"{kind}:%", ALL_TIME) for kind in SCOPED_KINDS)
    yield "daily", "daily", day
    yield "monthly", "monthly", day[:7]


def _day(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).date().isoformat()
