"""One record for each model call, preserved whatever else is deleted."""

from __future__ import annotations

import math
from time import time

from sqlalchemy import bindparam, func, select

from dodona.core.domain.budgets import NANOS_PER_USD, BudgetUnit, TokenRecord, period_bounds
from dodona.core.ports.model import Usage
from dodona.store.conversations.nodes import find_node
from dodona.store.db.database import Database, Row, Transaction
from dodona.store.db.statements import insert_into, statement
from dodona.store.db.text import to_json
from dodona.store.schema import token_records

_FIELDS = (
    *("user_id", "agent_id", "provider", "model", "input_tokens", "output_tokens"),
    *("cost_estimate_usd", "session_key", "run_id", "cache_read_tokens", "cache_write_tokens"),
    *("reasoning_tokens", "estimated", "timestamp"),
)
_INSERT_RECORD = insert_into(token_records, *_FIELDS, "usage_json")
_SELECT_BY_USER = statement(
    select(*(token_records.c[name] for name in _FIELDS))
    .where(
        token_records.c.user_id == bindparam("user_id"),
        token_records.c.timestamp >= bindparam("since"),
    )
    .order_by(token_records.c.timestamp, token_records.c.id)
    .limit(bindparam("limit"))
)
_SELECT_BY_RUN = statement(
    select(*(token_records.c[name] for name in _FIELDS))
    .where(
        token_records.c.user_id == bindparam("user_id"),
        # Only since the run began: there is an index on the time.
        token_records.c.timestamp >= bindparam("since"),
        token_records.c.run_id == bindparam("run_id"),
    )
    .order_by(token_records.c.id)
)


_TOTALS = (
    func.coalesce(func.sum(token_records.c.input_tokens + token_records.c.output_tokens), 0),
    func.coalesce(func.sum(token_records.c.cost_estimate_usd), 0.0),
)
# The records that each kind of budget counts.
_SUM_BY_KIND = {
    kind: statement(select(*_TOTALS).where(column == bindparam("name")))
    for kind, column in (
        ("session", token_records.c.session_key),
        ("agent", token_records.c.agent_id),
        ("user", token_records.c.user_id),
    )
}
_SUM_IN_PERIOD = statement(
    select(*_TOTALS).where(
        token_records.c.timestamp >= bindparam("since"),
        token_records.c.timestamp < bindparam("until"),
    )
)


def record(tx: Transaction, entry: TokenRecord, usage: Usage) -> None:
    """Write a record, with the provider's own usage report."""
    values = {name: getattr(entry, name) for name in _FIELDS}
    values["timestamp"] = entry.timestamp or time()
    tx.execute(_INSERT_RECORD, **values, usage_json=to_json(usage.wire) if usage.wire else None)


def sum_recorded_usage(tx: Transaction, scope: str, period: str, unit: BudgetUnit) -> int:
    """Sum the recorded usage of a budget; calls of unknown price cost nothing here."""
    kind, _, name = scope.partition(":")
    bounds = period_bounds(period)
    if bounds is not None and kind in ("daily", "monthly"):
        since, until = (each.timestamp() for each in bounds)
        row = tx.fetch_one(_SUM_IN_PERIOD, since=since, until=until)
    elif kind in _SUM_BY_KIND:
        row = tx.fetch_one(_SUM_BY_KIND[kind], name=name)
    else:
        return 0
    assert row is not None
    tokens, usd = row
    return int(tokens) if unit is BudgetUnit.TOKENS else math.ceil(round(usd * NANOS_PER_USD, 3))


class TokenRecords:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, entry: TokenRecord, usage: Usage) -> None:
        await self._database.write(lambda tx: record(tx, entry, usage))

    async def list_for_user(
        self, user_id: str, *, since: float = 0.0, limit: int = 1000
    ) -> list[TokenRecord]:
        rows = await self._database.read(
            lambda tx: tx.fetch_all(_SELECT_BY_USER, user_id=user_id, since=since, limit=limit)
        )
        return [_record_from_row(row) for row in rows]

    async def list_for_run(self, user_id: str, run_id: int) -> list[TokenRecord]:
        """Return the records of a run's calls, in order."""

        def read(tx: Transaction) -> list[Row]:
            since = find_node(tx, user_id, run_id).created_at
            return tx.fetch_all(_SELECT_BY_RUN, user_id=user_id, run_id=run_id, since=since)

        return [_record_from_row(row) for row in await self._database.read(read)]


def _record_from_row(row: Row) -> TokenRecord:
    return TokenRecord(**dict(zip(_FIELDS, row, strict=True)))
