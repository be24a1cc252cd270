"""Usage is added up by the database, for one user or for all, between two moments."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import UTC, datetime

import psycopg
import pytest

from dodona.core.domain.usage import GroupBy, UsageQuery
from dodona.store import Store, TokenRecord
from dodona.store.billing.token_records import grouped_statement
from dodona.store.db.statements import POSTGRES, SQLITE, Statement
from tests.stored import add_record

MIDNIGHT = datetime(2026, 11, 17, tzinfo=UTC).timestamp()
ALWAYS = {"since": 0.0, "until": 1e12}


def call(user: str, model: str, tokens: int, *, at: float, usd: float | None = 0.5) -> TokenRecord:
    return TokenRecord(
        *(user, f"agent-{user}", "openai", model, tokens, 1, usd),
        session_key=f"session-{user}",
        cache_read_tokens=2,
        cache_write_tokens=3,
        reasoning_tokens=1,
        estimated=usd is None,
        timestamp=at,
    )


@pytest.fixture
async def spent(store: Store) -> Store:
    for entry in (
        call("ada", "oak", 10, at=MIDNIGHT - 0.001),
        call("ada", "oak", 20, at=MIDNIGHT),
        call("ada", "elm", 300, at=MIDNIGHT + 5, usd=None),
        call("bob", "oak", 4000, at=MIDNIGHT + 5),
    ):
        await add_record(store, entry)
    return store


@pytest.mark.parametrize(
    ("by", "whose", "found"),
    [
        (GroupBy.DAY, "ada", {("2026-11-17",): 320, ("2026-11-16",): 10}),
        (GroupBy.DAY, None, {("2026-11-17",): 4320, ("2026-11-16",): 10}),
        (GroupBy.MODEL, "ada", {("openai", "elm"): 300, ("openai", "oak"): 30}),
        (GroupBy.AGENT, None, {("agent-bob",): 4000, ("agent-ada",): 330}),
        (GroupBy.SESSION, "bob", {("bob", "session-bob"): 4000}),
        (GroupBy.USER, None, {("bob",): 4000, ("ada",): 330}),
        (GroupBy.USER, "eve", {}),
    ],
)
async def test_what_calls_came_to(
    spent: Store, by: GroupBy, whose: str | None, found: dict[tuple[str, ...], int]
) -> None:
    """Days are those of UTC, the newest first; of others those that used most come first."""
    rows = await spent.usage.totals_by(UsageQuery(user_id=whose, **ALWAYS), by, limit=10)
    assert [(row.name, row.input_tokens) for row in rows] == list(found.items())
    assert len(await spent.usage.totals_by(UsageQuery(user_id=whose, **ALWAYS), by, limit=1)) <= 1


async def test_what_is_unknown_is_told(spent: Store) -> None:
    """Calls without a price cost nothing here, and are counted; so are those that were guessed."""
    total = await spent.usage.total(UsageQuery(user_id="ada", **ALWAYS))
    assert (total.calls, total.input_tokens, total.output_tokens) == (3, 330, 3)
    assert (total.cache_read_tokens, total.cache_write_tokens) == (6, 9)
    assert (total.cost_usd, total.unpriced_calls, total.estimated_calls) == (1.0, 1, 1)
    nothing = await spent.usage.total(UsageQuery(user_id="eve", **ALWAYS))
    assert (nothing.calls, nothing.cost_usd, nothing.unpriced_calls) == (0, 0.0, 0)


async def test_from_when_until_when(spent: Store) -> None:
    """The first moment counts, the last does not."""
    day = UsageQuery(user_id="ada", since=MIDNIGHT, until=MIDNIGHT + 5)
    assert (await spent.usage.total(day)).input_tokens == 20


@pytest.mark.parametrize("by", GroupBy)
@pytest.mark.parametrize("whose", ["ada", None])
@pytest.mark.usefixtures("store")
def test_an_index_finds_what_is_added_up(url: str, by: GroupBy, whose: str | None) -> None:
    """Not all records are read for those of a user, or of a day."""
    plan = _plan(url, grouped_statement(by, by_user=whose is not None), user_id=whose)
    # Of an empty table PostgreSQL may take any that fits.
    wanted = "user_id" if whose and not url.startswith(POSTGRES) else ""
    assert f"ix_token_records_{wanted}" in plan


def _plan(url: str, asked: Statement, **given: object) -> str:
    """How the database would find it."""
    values = {"since": MIDNIGHT, "until": MIDNIGHT + 5, "most": 5, **given}
    if url.startswith(POSTGRES):
        sql = f"EXPLAIN {asked.sql(POSTGRES)}"
        with psycopg.connect(url, cursor_factory=psycopg.ClientCursor) as connection:
            connection.execute("SET enable_seqscan = off")  # of an empty table it is the cheapest
            rows = connection.execute(sql.encode(), asked.prepare(values)).fetchall()
    else:
        sql = f"EXPLAIN QUERY PLAN {asked.sql(SQLITE)}"
        with closing(sqlite3.connect(url)) as connection:
            rows = connection.execute(sql, asked.to_positional(asked.prepare(values))).fetchall()
    return " ".join(str(row) for row in rows)
