"""Calls wait for budget that calls in progress have reserved, in the order of arrival."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial

import pytest

from dodona.core.domain.budgets import BillingScope, CallPlan, ModelUsage, Reservation
from dodona.core.errors import BudgetExceeded
from dodona.core.ports.model import Usage
from dodona.metering import Ceiling, Ceilings, Meter, Price, Prices
from dodona.store import Store
from tests.stored import budgets_of
from tests.system.waiting import until

AT = datetime(2026, 11, 16, 12, tzinfo=UTC).timestamp()
LIMIT = 120.0  # seconds that no test needs
FREE = Prices({"oak": Price(Decimal(0), Decimal(0))})


class Calls:
    """The calls of a process with a daily budget."""

    def __init__(self, store: Store, *, ceiling: int, wait_seconds: float = LIMIT) -> None:
        self.store = store
        ceilings = Ceilings(daily=Ceiling(tokens=ceiling))
        self.meter = Meter(ceilings, prices=FREE, wait_seconds=wait_seconds)

    def plan(self, tokens: int) -> CallPlan:
        scope = BillingScope(
            user_id="ada", agent_id="oracle", session_key=None, owner=self.store.owner
        )
        return CallPlan(
            scope=scope,
            step_key="ask",
            provider="openai",
            model="oak",
            input_tokens=tokens // 2,
            max_output_tokens=tokens - tokens // 2,
            at=AT,
        )

    async def reserve(self, tokens: int) -> Reservation:
        return await self.meter.wait_and_reserve(self.plan(tokens), self.store.commit)

    async def settle(self, reservation: Reservation, *, tokens: int, used: int) -> None:
        usage = ModelUsage("openai", "oak", Usage(used, 0))
        operation = self.meter.settle(reservation, self.plan(tokens), [usage])
        await self.store.commit(operation)

    async def make(self, *, tokens: int, used: int) -> None:
        """A whole call; at no time is the ceiling passed."""
        reservation = await self.reserve(tokens)
        (budget,) = await budgets_of(self.store)
        assert budget.used + budget.reserved <= budget.ceiling
        await self.settle(reservation, tokens=tokens, used=used)

    async def until_waiting(self, number: int) -> None:
        """Return when so many calls wait."""
        queue = self.meter._queue
        await until(lambda: queue._waiting.total() == number, f"{number} calls that wait")


async def test_a_budget_that_is_only_reserved_refuses_no_call(store: Store) -> None:
    """Of 200 calls at once, all are made: together they use half of the budget."""
    calls = Calls(store, ceiling=20_000)
    await asyncio.gather(*(calls.make(tokens=1000, used=50) for _ in range(200)))
    (budget,) = await budgets_of(store)
    assert (budget.used, budget.reserved) == (10_000, 0)


async def test_without_waiting_the_error_says_when_to_try_again(store: Store) -> None:
    """Seconds if only reservations block the call; nothing if the budget is used up."""
    calls = Calls(store, ceiling=1000, wait_seconds=0)
    first = await calls.reserve(900)
    with pytest.raises(BudgetExceeded, match="Calls in progress") as refused:
        await calls.reserve(900)
    assert refused.value.retry_after == refused.value.details["retry_after"] == 5
    await calls.settle(first, tokens=900, used=900)
    with pytest.raises(BudgetExceeded) as used_up:
        await calls.reserve(900)
    assert used_up.value.retry_after is None


async def test_a_used_up_budget_is_not_waited_for(store: Store) -> None:
    calls = Calls(store, ceiling=1000)
    await calls.make(tokens=900, used=900)
    first = await calls.reserve(50)
    with pytest.raises(BudgetExceeded):
        await calls.reserve(900)
    await calls.settle(first, tokens=50, used=0)


async def test_another_process_makes_room_too(store: Store, second: Store) -> None:
    """It wakes nobody here, but the waiting call tries again."""
    ours, theirs = Calls(store, ceiling=1000), Calls(second, ceiling=1000)
    held = await theirs.reserve(900)
    waiting = asyncio.create_task(ours.make(tokens=900, used=10))
    await ours.until_waiting(1)
    await theirs.settle(held, tokens=900, used=10)
    await waiting


async def test_the_first_is_served_first(store: Store) -> None:
    """Small calls that come later and would fit do not starve a large one."""
    calls = Calls(store, ceiling=1000)
    served: list[int] = []
    held = [await calls.reserve(450) for _ in range(2)]

    async def make(tokens: int) -> None:
        reservation = await calls.reserve(tokens)
        served.append(tokens)
        await calls.settle(reservation, tokens=tokens, used=1)

    tasks: list[asyncio.Task[None]] = []
    for number, tokens in enumerate((900, 90, 80, 70), 1):
        tasks.append(asyncio.create_task(make(tokens)))
        await calls.until_waiting(number)
    for each in held:
        await calls.settle(each, tokens=450, used=1)
    await asyncio.gather(*tasks)
    assert served[0] == 900
    assert sorted(served) == [70, 80, 90, 900]


@pytest.mark.parametrize("place", [0, 1])
async def test_a_call_that_waits_can_be_cancelled(store: Store, place: int) -> None:
    """The others go on, and nothing stays reserved for it."""
    calls = Calls(store, ceiling=1000)
    held = await calls.reserve(900)
    make = partial(calls.make, tokens=900, used=10)
    tasks: list[asyncio.Task[None]] = []
    for number in (1, 2):
        tasks.append(asyncio.create_task(make()))
        await calls.until_waiting(number)
    tasks[place].cancel()
    await calls.until_waiting(1)
    await calls.settle(held, tokens=900, used=10)
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(results[place], asyncio.CancelledError)
    assert results[1 - place] is None
    (budget,) = await budgets_of(store)
    assert (budget.used, budget.reserved) == (20, 0)


async def test_waiting_ends(store: Store) -> None:
    """After `wait_seconds`, in the first place and behind others, with the error of the budget."""
    calls = Calls(store, ceiling=1000, wait_seconds=0.05)
    held = await calls.reserve(900)
    results = await asyncio.gather(*(calls.reserve(900) for _ in range(3)), return_exceptions=True)
    assert [getattr(each, "retry_after", None) for each in results] == [5, 5, 5]
    await calls.settle(held, tokens=900, used=10)
    await calls.make(tokens=900, used=10)
