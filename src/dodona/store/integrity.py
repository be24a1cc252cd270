"""Looking a store over without changing it: the file, its references, what the code relies on."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass

import msgspec
import psycopg
from sqlalchemy import func, or_, select, text

from dodona.core.errors import NotFound
from dodona.store.billing.budgets import BudgetLine, Unit
from dodona.store.db import postgres, sqlite
from dodona.store.db.database import Row, Transaction
from dodona.store.db.location import Location
from dodona.store.db.open import inspect
from dodona.store.db.statements import Statement, statement
from dodona.store.schema import (
    IS_HELD,
    IS_OPEN,
    budgets,
    conversations,
    messages,
    reservations,
    runs,
)

_SHOWN = 20  # of each sort of problem; one is enough to know

_PAGES = statement(text(f"PRAGMA integrity_check({_SHOWN})"))
_REFERENCES = statement(text("PRAGMA foreign_key_check"))
_HEADS = statement(
    select(conversations.c.id)
    .join(runs, runs.c.id == conversations.c.head_id)
    .where(or_(IS_OPEN, runs.c.conversation_id != conversations.c.id))
    .limit(_SHOWN)
)
_GAPS = statement(
    select(messages.c.run_id)
    .group_by(messages.c.run_id)
    .having(func.max(messages.c.ordinal) + 1 != func.count())
    .limit(_SHOWN)
)
_SUMS = statement(
    select(runs.c.id)
    .join(messages, messages.c.run_id == runs.c.id, isouter=True)
    .group_by(runs.c.id, runs.c.tokens)
    .having(func.coalesce(func.sum(messages.c.token_count), 0) != runs.c.tokens)
    .limit(_SHOWN)
)
_HOLDS = statement(select(reservations.c.lines_json).where(IS_HELD))
_BUDGETS = statement(select(budgets.c.scope, budgets.c.period, budgets.c.unit, budgets.c.held))


def _unreached() -> Statement:
    """Runs that no walk from a root comes to: a circle, cut off from the rest."""
    reached = select(runs.c.id).where(runs.c.parent_id.is_(None)).cte("reached", recursive=True)
    children = select(runs.c.id).where(runs.c.parent_id == reached.c.id)
    found = select(reached.union_all(children).c.id)
    return statement(select(runs.c.id).where(runs.c.id.not_in(found)).limit(_SHOWN))


_UNREACHED = _unreached()


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at, and what is wrong with it."""

    name: str
    problems: tuple[str, ...]


def check(location: Location) -> Iterator[Check]:
    """Look at one thing after the other; the first ones may take long on a large store."""
    if not inspect(location).revision:
        raise NotFound(f"there is no store at {location}.", hint="Make one: dodona db migrate.")
    with _reading(location) as tx:
        if location.path is not None:
            pages = [row[0] for row in tx.rows(_PAGES)]
            yield Check("pages", () if pages == ["ok"] else tuple(pages))
            yield Check("references", _told(tx.rows(_REFERENCES), "a row of {} refers to nothing"))
        yield Check(
            "heads",
            _told(tx.rows(_HEADS), "the head of conversation {} is another's, or has not ended"),
        )
        yield Check("branches", _told(tx.rows(_UNREACHED), "run {} hangs on no root"))
        yield Check("messages", _told(tx.rows(_GAPS), "run {} has gaps between its messages"))
        yield Check("tokens", _told(tx.rows(_SUMS), "run {} miscounts its messages' tokens"))
        yield Check("budgets", _holds(tx))


def _told(rows: list[Row], words: str) -> tuple[str, ...]:
    return tuple(words.format(row[0]) for row in rows[:_SHOWN])


def _holds(tx: Transaction) -> tuple[str, ...]:
    """What is held of each budget must be what its open reservations hold."""
    expected: Counter[tuple[str, str, Unit]] = Counter()
    for (lines,) in tx.rows(_HOLDS):
        for line in msgspec.json.decode(lines, type=list[BudgetLine]):
            expected[line.scope, line.period, line.unit] += line.amount
    found = {(scope, period, Unit(unit)): held for scope, period, unit, held in tx.rows(_BUDGETS)}
    wrong = [key for key in {*expected, *found} if expected[key] != found.get(key, 0)]
    return tuple(
        f"of the budget {scope} {period}, {unit.format(found.get((scope, period, unit), 0))} are "
        f"held, but its reservations hold {unit.format(expected[scope, period, unit])}"
        for scope, period, unit in sorted(wrong, key=str)[:_SHOWN]
    )


@contextmanager
def _reading(location: Location) -> Generator[Transaction]:
    if location.path is None:
        try:
            with closing(postgres.connect(location, durability="full")) as connection:
                connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
                yield postgres.PostgresTransaction(connection)
        except psycopg.Error as error:
            raise postgres.translated(error, location) from error
        return
    try:
        with closing(sqlite.connect_reader(location.path)) as connection:
            connection.execute("BEGIN")
            yield sqlite.SqliteTransaction(connection)
    except sqlite3.Error as error:
        raise sqlite.translated(error, location.path) from error
