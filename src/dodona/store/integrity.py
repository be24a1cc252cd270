"""A read-only integrity check of a store: pages, references, and invariants of the code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass

import msgspec
from sqlalchemy import func, or_, select, text

from dodona.core.errors import NotFound
from dodona.store.billing.budgets import BudgetLine, BudgetUnit
from dodona.store.db import postgres, sqlite
from dodona.store.db.database import Row, Transaction
from dodona.store.db.location import StoreLocation
from dodona.store.db.open import inspect
from dodona.store.db.statements import Statement, statement
from dodona.store.schema import (
    IS_OPEN,
    IS_RESERVED,
    budgets,
    conversations,
    messages,
    reservations,
    runs,
    tokens,
)

_MAX_PROBLEMS = 20  # per check

_CHECK_PAGES = statement(text(f"PRAGMA integrity_check({_MAX_PROBLEMS})"))
_CHECK_REFERENCES = statement(text("PRAGMA foreign_key_check"))
_SELECT_WRONG_HEADS = statement(
    select(conversations.c.id)
    .join(runs, runs.c.id == conversations.c.head_id)
    .where(or_(IS_OPEN, runs.c.conversation_id != conversations.c.id))
    .limit(_MAX_PROBLEMS)
)
_SELECT_MESSAGE_GAPS = statement(
    select(messages.c.run_id)
    .group_by(messages.c.run_id)
    .having(func.max(messages.c.ordinal) + 1 != func.count())
    .limit(_MAX_PROBLEMS)
)
_SELECT_WRONG_TOKEN_SUMS = statement(
    select(runs.c.id)
    .join(messages, messages.c.run_id == runs.c.id, isouter=True)
    .group_by(runs.c.id, runs.c.tokens)
    .having(func.coalesce(func.sum(messages.c.token_count), 0) != runs.c.tokens)
    .limit(_MAX_PROBLEMS)
)
_SELECT_WITHOUT_TOKEN = statement(
    select(runs.c.id)
    .join(tokens, tokens.c.id == runs.c.token_id, isouter=True)
    .where(runs.c.token_id.is_not(None), tokens.c.id.is_(None))
    .limit(_MAX_PROBLEMS)
)
_SELECT_RESERVED_LINES = statement(select(reservations.c.lines_json).where(IS_RESERVED))
_SELECT_BUDGETS = statement(
    select(budgets.c.scope, budgets.c.period, budgets.c.unit, budgets.c.held)
)


def _unreachable_statement() -> Statement:
    """Select the runs that are not reachable from a root: a cycle, separate from the tree."""
    reached = select(runs.c.id).where(runs.c.parent_id.is_(None)).cte("reached", recursive=True)
    children = select(runs.c.id).where(runs.c.parent_id == reached.c.id)
    reachable = select(reached.union_all(children).c.id)
    return statement(select(runs.c.id).where(runs.c.id.not_in(reachable)).limit(_MAX_PROBLEMS))


_CHECKS = {
    "heads": (
        _SELECT_WRONG_HEADS,
        "the head of conversation {} has not ended, or is in another conversation",
    ),
    "branches": (_unreachable_statement(), "run {} is not reachable from a root"),
    "messages": (_SELECT_MESSAGE_GAPS, "run {} has gaps in its messages"),
    "tokens": (_SELECT_WRONG_TOKEN_SUMS, "run {} has a wrong token count"),
    "api tokens": (_SELECT_WITHOUT_TOKEN, "run {} has an API token that does not exist"),
}


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The name of a check, and the problems that it found."""

    name: str
    problems: tuple[str, ...]


def check(location: StoreLocation) -> Iterator[CheckResult]:
    """Run all checks; the first ones may take long on a large store."""
    if not inspect(location).revision:
        raise NotFound(f"there is no store at {location}.", hint="Create it: dodona db migrate.")
    with _read_transaction(location) as tx:
        if location.path is not None:
            pages = [row[0] for row in tx.fetch_all(_CHECK_PAGES)]
            yield CheckResult("pages", () if pages == ["ok"] else tuple(pages))
            broken = tx.fetch_all(_CHECK_REFERENCES)
            yield CheckResult(
                "references", _format_problems(broken, "a row of {} has a broken reference")
            )
        for name, (query, template) in _CHECKS.items():
            yield CheckResult(name, _format_problems(tx.fetch_all(query), template))
        yield CheckResult("budgets", _check_reserved(tx))


def _format_problems(rows: list[Row], template: str) -> tuple[str, ...]:
    return tuple(template.format(row[0]) for row in rows[:_MAX_PROBLEMS])


def _check_reserved(tx: Transaction) -> tuple[str, ...]:
    """Compare the reserved amount of each budget with its open reservations."""
    expected: Counter[tuple[str, str, BudgetUnit]] = Counter()
    for (lines,) in tx.fetch_all(_SELECT_RESERVED_LINES):
        for line in msgspec.json.decode(lines, type=list[BudgetLine]):
            expected[line.scope, line.period, line.unit] += line.amount
    actual = {
        (scope, period, BudgetUnit(unit)): reserved
        for scope, period, unit, reserved in tx.fetch_all(_SELECT_BUDGETS)
    }
    wrong = [key for key in {*expected, *actual} if expected[key] != actual.get(key, 0)]
    return tuple(
        f"the budget {scope} {period} has {unit.format(actual.get((scope, period, unit), 0))} "
        f"reserved, but its reservations sum to {unit.format(expected[scope, period, unit])}"
        for scope, period, unit in sorted(wrong, key=str)[:_MAX_PROBLEMS]
    )


@contextmanager
def _read_transaction(location: StoreLocation) -> Generator[Transaction]:
    if location.path is None:
        with postgres.connected(location) as connection:
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            yield postgres.PostgresTransaction(connection)
        return
    with (
        sqlite.store_errors(location.path),
        closing(sqlite.connect_reader(location.path)) as connection,
    ):
        connection.execute("BEGIN")
        yield sqlite.SqliteTransaction(connection)
