"""What the store tells of how things stand, and how it is found out that it can be written."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime

import pytest

from dodona.core.domain.budgets import BudgetLine, BudgetUnit
from dodona.core.domain.conversations.conversation import Conversation
from dodona.core.errors import BudgetExceeded, StoreError
from dodona.store import Store
from dodona.store.db.database import Transaction
from dodona.store.health import PROBE_ROW, WriteProbe, _write_probe
from dodona.store.schema import tree_globals
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


async def test_the_pulse_writes_and_not_too_often(store: Store) -> None:
    """One row, over and over; whoever asks within a second is told of the last one."""
    now = 0.0
    pulse = WriteProbe(store.database, clock=lambda: now)

    async def beats() -> str:
        return (await rows_of(store, tree_globals))[0]["value_json"]

    await asyncio.gather(*(pulse.check() for _ in range(20)))
    (row,) = await rows_of(store, tree_globals)
    assert row | PROBE_ROW == row
    first = await beats()
    await pulse.check()
    assert await beats() == first
    now = 1.5
    await pulse.check()
    assert await beats() >= first


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
        pulse = WriteProbe(store.database, timeout_seconds=0.02)
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
