"""What the store tells of how things stand, and how it is found out that it can be written."""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.sql import SQL, Identifier
from sqlalchemy import text

from dodona.core.domain.budgets import BudgetLine, BudgetUnit
from dodona.core.domain.conversations.conversation import Conversation, RunRequest
from dodona.core.errors import BudgetExceeded, StoreError, WriteRejected
from dodona.store import Store
from dodona.store.db.database import Transaction
from dodona.store.db.sqlite import SqliteTransaction, to_store_error
from dodona.store.db.statements import Statement, insert_into, statement
from dodona.store.db.writer import Writer
from dodona.store.health import (
    CACHE_SECONDS,
    FAILURE_SECONDS,
    PROBE_SCOPE,
    WriteProbe,
    _write_probe,
)
from dodona.store.schema import projects, tree_globals
from tests.conformance.store.saying import rows_of, said
from tests.stored import reserve_now, settle_now

AT = datetime(2026, 11, 18, 23, 59, tzinfo=UTC).timestamp()


def line(
    scope: str, period: str, amount: int, ceiling: int, unit: BudgetUnit = BudgetUnit.TOKENS
) -> BudgetLine:
    return BudgetLine(scope, period, unit, amount, ceiling)


async def test_the_fullest_budget_of_each_kind(store: Store) -> None:
    """However many sessions there are, one number tells; other days and months do not count."""
    held = await reserve_now(
        store,
        [
            line("session:a", "-", 20, 100),
            line("session:b%", "-", 70, 100),
            line("daily", "2026-11-18", 30, 40),
            line("daily", "2026-11-17", 40, 40),
            line("monthly", "2026-11", 1, 4),
            line("daily", "2026-11-18", 5, 10, BudgetUnit.USD),
        ],
    )
    assert await store.gauges.max_usage_ratios(AT) == {
        ("session", "tokens"): 0.7,
        ("daily", "tokens"): 0.75,
        ("daily", "usd"): 0.5,
        ("monthly", "tokens"): 0.25,
    }
    await settle_now(store, held, tokens=10, nanos=1)
    assert (await store.gauges.max_usage_ratios(AT))["session", "tokens"] == 0.1
    now = [
        (each.scope, each.period, each.unit.value)
        for each in await store.gauges.current_budgets(AT)
    ]
    assert now == [
        ("monthly", "2026-11", "tokens"),
        ("daily", "2026-11-18", "tokens"),
        ("daily", "2026-11-18", "usd"),
    ]


async def test_a_budget_of_nothing_is_full(store: Store) -> None:
    with pytest.raises(BudgetExceeded):
        await reserve_now(store, [line("user:ada", "-", 1, 0)])
    assert await store.gauges.max_usage_ratios(AT) == {}
    await reserve_now(store, [line("user:ada", "-", 0, 0)])
    assert await store.gauges.max_usage_ratios(AT) == {("user", "tokens"): 1.0}


async def test_lanes_that_wait(store: Store, talk: Conversation) -> None:
    """A conversation counts once, however many messages wait in it."""
    assert await store.gauges.count_waiting_lanes() == 0
    for _ in range(3):
        await store.runs.accept("ada", talk.id, said("?"))
    other = await store.conversations.create("bob")
    await store.runs.accept("bob", other.id, said("?"))
    assert await store.gauges.count_waiting_lanes() == 2


async def test_the_probe_writes_and_not_too_often(store: Store) -> None:
    """One row, always a new one; within a second, the last result is returned without a write."""
    now = 0.0
    probe = WriteProbe(store.database, clock=lambda: now)

    async def key() -> str:
        (row,) = await rows_of(store, tree_globals)
        assert row | PROBE_SCOPE == row
        return row["key"]

    await asyncio.gather(*(probe.check() for _ in range(20)))
    first = await key()
    await probe.check()
    assert await key() == first
    now = 1.5
    await probe.check()
    assert await key() != first


async def test_a_pulse_that_does_not_come(store: Store) -> None:
    """It is waited for no longer than that, whoever asks; and then it is well again."""
    await store.write_probe.check()
    is_held, may_go = threading.Event(), threading.Event()

    def hold(tx: Transaction) -> None:
        _write_probe(tx)
        is_held.set()
        may_go.wait(60)

    held = store.database.submit(hold)
    try:
        await asyncio.to_thread(is_held.wait, 60)
        now = itertools.count(step=CACHE_SECONDS)
        pulse = WriteProbe(store.database, timeout_seconds=0.02, clock=lambda: next(now))
        for _ in range(3):
            with pytest.raises(StoreError, match=r"has not completed a write within 0\.02 seconds"):
                await pulse.check()
    finally:
        may_go.set()
    await held
    async with asyncio.timeout(60):
        while not await is_well(pulse):
            pass


async def is_well(pulse: WriteProbe) -> bool:
    try:
        await pulse.check()
    except StoreError:
        return False
    return True


def pragma(name: str) -> Statement:
    return statement(text(f"PRAGMA {name}"))


async def fill(store: Store) -> None:
    """Ask until the disk is full."""
    number = 0
    while True:
        number += 1
        question = f"{number} " * 500
        await store.runs.submit(RunRequest(user_id="ada", question=question, token_count=1))


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
async def test_a_full_disk_is_noticed_and_its_end_too(store: Store) -> None:
    """Not only by the failed questions: the probe itself finds no room."""
    found = await store.database.read(lambda tx: tx.fetch_one(pragma("page_count")))
    assert found is not None
    pages = found[0] + 30
    await store.database.write(lambda tx: tx.fetch_one(pragma(f"max_page_count = {pages}")))
    with pytest.raises(StoreError, match="the disk is full"):
        await fill(store)
    for probe in (store.write_probe, WriteProbe(store.database)):
        with pytest.raises(StoreError, match="the disk is full"):
            await probe.check()
    await store.database.write(lambda tx: tx.fetch_one(pragma("max_page_count = 100000")))
    await WriteProbe(store.database).check()


async def set_read_only(url: str, setting: str) -> None:
    """Set the default of new transactions, and make the store connect again."""
    name = url.partition("?")[0].rpartition("/")[2]
    query = "ALTER DATABASE {} SET default_transaction_read_only = {}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET default_transaction_read_only = off")
        connection.execute(SQL(query).format(Identifier(name), SQL(setting)))
        connection.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
async def test_a_read_only_server_is_noticed_and_its_end_too(store: Store, url: str) -> None:
    await store.write_probe.check()
    await set_read_only(url, "on")
    try:
        with pytest.raises(StoreError, match="is read-only"):
            await WriteProbe(store.database).check()
    finally:
        await set_read_only(url, "off")
    await WriteProbe(store.database).check()


async def test_a_read_only_file_is_noticed(migrated_file: Path) -> None:
    connection = sqlite3.connect(
        f"file:{migrated_file}?mode=ro", uri=True, isolation_level=None, check_same_thread=False
    )
    database: Any = Writer(
        connection,
        transaction=SqliteTransaction,
        translate=lambda error: to_store_error(error, migrated_file),
    )
    try:
        with pytest.raises(StoreError, match="file or disk is read-only"):
            await WriteProbe(database).check()
    finally:
        await asyncio.to_thread(database.close)


async def test_a_failed_write_counts_although_the_probe_fits(store: Store) -> None:
    """For some seconds, and the reason is the same; then the probe decides."""
    now = 0.0
    probe = WriteProbe(store.database, clock=lambda: now)
    await probe.check()
    probe.record_failure(StoreError("the disk is full.", hint="Free some."))
    with pytest.raises(StoreError, match=r"the disk is full\. Free some\."):
        await probe.check()
    now = FAILURE_SECONDS - 0.1
    with pytest.raises(StoreError):
        await probe.check()
    now = FAILURE_SECONDS
    await probe.check()


async def test_the_writes_of_the_application_are_watched(store: Store) -> None:
    """A question that cannot be stored makes the gateway unready, although the probe would fit."""

    def fail(_: Transaction) -> None:
        raise StoreError("the disk is full.")

    await store.write_probe.check()
    with pytest.raises(StoreError):
        await store.database.write(fail)
    with pytest.raises(StoreError, match=r"the disk is full\."):
        await store.write_probe.check()


async def test_what_the_schema_forbids_does_not_count(store: Store) -> None:
    """One request with impossible data does not take the gateway out of service."""
    again = insert_into(projects, "user_id", "id", "created_at")

    def insert_twice(tx: Transaction) -> None:
        for _ in range(2):
            tx.execute(again, user_id="ada", id="p", created_at=1.0)

    with pytest.raises(WriteRejected):
        await store.database.write(insert_twice)
    await store.write_probe.check()


async def test_writes_are_timed(url: str) -> None:
    """Each that was committed, once; one that fails is none."""
    taken: list[float] = []
    async with await Store.open(url, redact=str, on_write=taken.append) as store:
        before = len(taken)
        await store.conversations.create("ada")

        def fail(tx: Transaction) -> None:
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await store.database.write(fail)
        assert len(taken) == before + 1
        assert all(0 < seconds < 60 for seconds in taken)
