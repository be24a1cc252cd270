"""Records added up by the database, over an index on the user or the time."""

from __future__ import annotations

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

from dodona.core.domain.usage import GroupBy, Period, UsageTotals
from dodona.store.db.database import Database, Row, Transaction
from dodona.store.db.statements import POSTGRES, Statement
from dodona.store.schema import token_records

_of = token_records.c
_SUMMED = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")
_SUMS = (
    func.count(),
    *(func.coalesce(func.sum(_of[name]), 0) for name in (*_SUMMED, "reasoning_tokens")),
    func.coalesce(func.sum(_of.cost_estimate_usd), 0.0),
    func.coalesce(func.sum(case((_of.cost_estimate_usd.is_(None), 1), else_=0)), 0),
    func.coalesce(func.sum(case((_of.estimated, 1), else_=0)), 0),
)
_TOKENS: Final = func.sum(_of.input_tokens + _of.output_tokens)
# Spelled out: as a bound value, PostgreSQL takes the format for another one each time.
_DAY: Final[dict[bool, ColumnClause[str]]] = {
    True: literal_column("to_char(to_timestamp(timestamp) AT TIME ZONE 'UTC', 'YYYY-MM-DD')"),
    False: literal_column("date(timestamp, 'unixepoch')"),
}
_COLUMNS: Final[dict[GroupBy, tuple[ColumnElement[Any], ...]]] = {
    GroupBy.AGENT: (_of.agent_id,),
    GroupBy.MODEL: (_of.provider, _of.model),
    GroupBy.SESSION: (_of.session_key,),
    GroupBy.USER: (_of.user_id,),
}


def _between(chosen: Select[Any], *, own: bool) -> Select[Any]:
    found = chosen.where(_of.timestamp >= bindparam("since"), _of.timestamp < bindparam("until"))
    return found.where(_of.user_id == bindparam("user_id")) if own else found


def _total(*, own: bool) -> Statement:
    return Statement(lambda _: _between(select(*_SUMS), own=own))


def grouped(by: GroupBy, *, own: bool) -> Statement:
    """Records put together; of one user, or of all."""

    def make(dialect: str) -> ClauseElement:
        names: tuple[ColumnElement[Any], ...]
        names = (_DAY[dialect == POSTGRES],) if by is GroupBy.DAY else _COLUMNS[by]
        order = names[0].desc() if by is GroupBy.DAY else _TOKENS.desc()
        chosen = _between(select(*names, *_SUMS), own=own)
        return chosen.group_by(*names).order_by(order, *names).limit(bindparam("most"))

    return Statement(make)


_TOTAL: Final = {own: _total(own=own) for own in (True, False)}
_GROUPED: Final = {(by, own): grouped(by, own=own) for by in GroupBy for own in (True, False)}


class UsageLog:
    """What the records come to."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def total(self, span: Period) -> UsageTotals:
        (row,) = await self._read(_TOTAL[span.user_id is not None], span)
        return _spent(row, 0)

    async def grouped(self, span: Period, by: GroupBy, *, most: int) -> list[UsageTotals]:
        statement = _GROUPED[by, span.user_id is not None]
        rows = await self._read(statement, span, most=most)
        return [_spent(row, 2 if by is GroupBy.MODEL else 1) for row in rows]

    async def _read(self, statement: Statement, span: Period, **more: Any) -> list[Row]:
        values = {"since": span.since, "until": span.until, **more}
        if span.user_id is not None:
            values["user_id"] = span.user_id

        def read(tx: Transaction) -> list[Row]:
            return tx.rows(statement, **values)

        return await self._database.read(read)


def _spent(row: Row, names: int) -> UsageTotals:
    calls, *tokens, cost, unpriced, estimated = row[names:]
    read, written, from_cache, to_cache, reasoning = map(int, tokens)
    return UsageTotals(
        name=tuple(row[:names]),
        calls=calls,
        input_tokens=read,
        output_tokens=written,
        cache_read_tokens=from_cache,
        cache_write_tokens=to_cache,
        reasoning_tokens=reasoning,
        cost_usd=float(cost),
        unpriced=int(unpriced),
        estimated=int(estimated),
    )
