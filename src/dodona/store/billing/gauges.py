"""How things stand: how full budgets are, how many lanes wait."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from sqlalchemy import Double, bindparam, case, cast, distinct, func, select

from dodona.core.domain.budgets import TOTAL, Unit
from dodona.store.billing.budgets import Budget
from dodona.store.db.database import Database, Transaction
from dodona.store.db.statements import statement
from dodona.store.schema import IS_QUEUED, budgets, runs

# Of a kind with many budgets the scope is KIND:NAME; the others are one in a period.
MANY: Final = ("session", "agent", "user")

_spent = cast(budgets.c.used + budgets.c.held, Double)
_ratio = case((budgets.c.ceiling > 0, _spent / budgets.c.ceiling), else_=1.0)
_FULLEST = statement(
    select(budgets.c.unit, func.max(_ratio))
    .where(budgets.c.scope.like(bindparam("pattern")), budgets.c.period == bindparam("period"))
    .group_by(budgets.c.unit)
)
_NOW = statement(
    select(*budgets.c)
    .where(budgets.c.period.in_([bindparam("day"), bindparam("month")]))
    .order_by(budgets.c.period, budgets.c.scope, budgets.c.unit)
    .limit(100)
)

_WAITING = statement(select(func.count(distinct(runs.c.conversation_id))).where(IS_QUEUED))


class Gauges:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def fullest(self, at: float) -> dict[tuple[str, str], float]:
        """By kind and unit: what is used and held of the ceiling, 1 when nothing is allowed."""
        kinds = tuple(_kinds(at))

        def read(tx: Transaction) -> dict[tuple[str, str], float]:
            return {
                (kind, unit): ratio
                for kind, pattern, period in kinds
                for unit, ratio in tx.rows(_FULLEST, pattern=pattern, period=period)
            }

        return await self._database.read(read)

    async def lanes_waiting(self) -> int:
        """The conversations in which a run waits for its turn, whichever process will drive it."""
        row = await self._database.read(lambda tx: tx.row(_WAITING))
        assert row is not None
        return row[0]

    async def now(self, at: float) -> list[Budget]:
        """The budgets of the day and of the month."""
        day = _day(at)
        rows = await self._database.read(lambda tx: tx.rows(_NOW, day=day, month=day[:7]))
        return [
            Budget(scope, period, Unit(unit), ceiling, used, held)
            for scope, period, unit, ceiling, used, held in rows
        ]


def _kinds(at: float) -> Iterator[tuple[str, str, str]]:
    day = _day(at)
    yield from ((kind, f"{kind}:%", TOTAL) for kind in MANY)
    yield "daily", "daily", day
    yield "monthly", "monthly", day[:7]


def _day(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).date().isoformat()
