"""One record for each model call, preserved whatever else is deleted, and their totals."""

from __future__ import annotations

import math
from time import time
from typing import Any, Final

from sqlalchemy import (
    ColumnClause,
    ColumnElement,
    Select,
    bindparam,
    case,
    func,
    literal_column,
    select,
)
from sqlalchemy.sql import ClauseElement

from dodona.core.domain.budgets import NANOS_PER_USD, BudgetUnit, TokenRecord, period_bounds
from dodona.core.domain.usage import GroupBy, UsageQuery, UsageTotals
from dodona.core.ports.model import Usage
from dodona.store.conversations.nodes import find_node
from dodona.store.db.database import Database, Row, Transaction
from dodona.store.db.statements import POSTGRES, Statement, insert_into, statement
from dodona.store.db.text import to_json
from dodona.store.schema import token_records

_FIELDS = (
    *("user_id", "agent_id", "provider", "model", "input_tokens", "output_tokens"),
    *("cost_estimate_usd", "session_key", "run_id", "cache_read_tokens", "cache_write_tokens"),
    *("reasoning_tokens", "estimated", "timestamp"),
)
_INSERT_RECORD = insert_into(token_records, *_FIELDS, "usage_json")
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
        ("agent", token_records.c.agent_id),
        ("user", token_records.c.user_id),
    )
}
_SUM_OF_SESSION = statement(
    select(*_TOTALS).where(
        token_records.c.user_id == bindparam("user_id"),
        token_records.c.session_key == bindparam("session_key"),
    )
)
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
    elif kind == "session":
        user_id, _, key = name.partition(":")
        row = tx.fetch_one(_SUM_OF_SESSION, user_id=user_id, session_key=key)
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

    async def list_for_run(self, user_id: str, run_id: int) -> list[TokenRecord]:
        """Return the records of a run's calls, in order."""

        def read(tx: Transaction) -> list[Row]:
            since = find_node(tx, user_id, run_id).created_at
            return tx.fetch_all(_SELECT_BY_RUN, user_id=user_id, run_id=run_id, since=since)

        return [_record_from_row(row) for row in await self._database.read(read)]


def _record_from_row(row: Row) -> TokenRecord:
    return TokenRecord(**dict(zip(_FIELDS, row, strict=True)))


# -- totals ---------------------------------------------------------------------------------------

_records = token_records.c
_TOKEN_FIELDS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")
_SUM_COLUMNS = (
    func.count(),
    *(func.coalesce(func.sum(_records[name]), 0) for name in (*_TOKEN_FIELDS, "reasoning_tokens")),
    func.coalesce(func.sum(_records.cost_estimate_usd), 0.0),
    func.coalesce(func.sum(case((_records.cost_estimate_usd.is_(None), 1), else_=0)), 0),
    func.coalesce(func.sum(case((_records.estimated, 1), else_=0)), 0),
)
_TOTAL_TOKENS: Final = func.sum(_records.input_tokens + _records.output_tokens)
# Literal: PostgreSQL treats a bound format in SELECT and in GROUP BY as two different expressions.
_DAY_EXPRESSION: Final[dict[bool, ColumnClause[str]]] = {
    True: literal_column("to_char(to_timestamp(timestamp) AT TIME ZONE 'UTC', 'YYYY-MM-DD')"),
    False: literal_column("date(timestamp, 'unixepoch')"),
}
_GROUP_COLUMNS: Final[dict[GroupBy, tuple[ColumnElement[Any], ...]]] = {
    GroupBy.AGENT: (_records.agent_id,),
    GroupBy.MODEL: (_records.provider, _records.model),
    # Not by the key alone: keys of different users may be equal.
    GroupBy.SESSION: (_records.user_id, _records.session_key),
    GroupBy.USER: (_records.user_id,),
}


def _in_period(query: Select[Any], *, by_user: bool) -> Select[Any]:
    filtered = query.where(
        _records.timestamp >= bindparam("since"), _records.timestamp < bindparam("until")
    )
    return filtered.where(_records.user_id == bindparam("user_id")) if by_user else filtered


def _total_statement(*, by_user: bool) -> Statement:
    return Statement(lambda _: _in_period(select(*_SUM_COLUMNS), by_user=by_user))


def grouped_statement(by: GroupBy, *, by_user: bool) -> Statement:
    """Build the query of totals per group, of one user or of all users."""

    def build(dialect: str) -> ClauseElement:
        names: tuple[ColumnElement[Any], ...]
        names = (_DAY_EXPRESSION[dialect == POSTGRES],) if by is GroupBy.DAY else _GROUP_COLUMNS[by]
        order = names[0].desc() if by is GroupBy.DAY else _TOTAL_TOKENS.desc()
        selected = _in_period(select(*names, *_SUM_COLUMNS), by_user=by_user)
        return selected.group_by(*names).order_by(order, *names).limit(bindparam("most"))

    return Statement(build)


_SELECT_TOTAL: Final = {own: _total_statement(by_user=own) for own in (True, False)}
_SELECT_GROUPS: Final = {
    (by, own): grouped_statement(by, by_user=own) for by in GroupBy for own in (True, False)
}


class UsageLog:
    """Usage totals from the records."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def total(self, query: UsageQuery) -> UsageTotals:
        (row,) = await self._read(_SELECT_TOTAL[query.user_id is not None], query)
        return _totals_from_row(row, 0)

    async def totals_by(self, query: UsageQuery, by: GroupBy, *, limit: int) -> list[UsageTotals]:
        """Return totals per group: days newest first, other groups by most tokens."""
        statement = _SELECT_GROUPS[by, query.user_id is not None]
        rows = await self._read(statement, query, most=limit)
        return [_totals_from_row(row, len(_GROUP_COLUMNS.get(by, (by,)))) for row in rows]

    async def _read(self, statement: Statement, query: UsageQuery, **more: Any) -> list[Row]:
        values = {"since": query.since, "until": query.until, **more}
        if query.user_id is not None:
            values["user_id"] = query.user_id

        def read(tx: Transaction) -> list[Row]:
            return tx.fetch_all(statement, **values)

        return await self._database.read(read)


def _totals_from_row(row: Row, name_count: int) -> UsageTotals:
    calls, *tokens, cost, unpriced, estimated = row[name_count:]
    input_tokens, output_tokens, cache_read, cache_write, reasoning = map(int, tokens)
    return UsageTotals(
        name=tuple(row[:name_count]),
        calls=calls,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        cache_read_tokens=cache_read,
        cache_write_tokens=cache_write,
        reasoning_tokens=reasoning,
        cost_usd=float(cost),
        unpriced_calls=int(unpriced),
        estimated_calls=int(estimated),
    )
