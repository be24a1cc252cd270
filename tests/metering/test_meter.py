"""Every call is reserved before it is made, settled after it, and recorded."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from dodona.core.domain.budgets import (
    NANOS_PER_USD,
    BillingScope,
    CallPlan,
    ModelUsage,
    Reservation,
    TokenRecord,
)
from dodona.core.domain.conversations.conversation import (
    Claim,
    ClaimedRun,
    NewMessage,
    RunEnd,
    RunStatus,
)
from dodona.core.errors import BudgetExceeded
from dodona.core.ports.model import Usage
from dodona.metering import Ceiling, Ceilings, Meter, Price, Prices
from dodona.store import RunJournal, Store
from tests.stored import budgets_of, records_of

AT = datetime(2026, 11, 16, 12, tzinfo=UTC).timestamp()
# A dollar, two and ten for a thousand tokens.
PRICES = Prices(
    {
        "oak": Price(Decimal(1000), Decimal(1000)),
        "openai/elm": Price(Decimal(2000), Decimal(2000)),
        "openai-compatible/yew": Price(Decimal(10_000), Decimal(10_000)),
    }
)
DAILY = Ceilings(daily=Ceiling(tokens=1000, usd=Decimal(1)))


def meter(ceilings: Ceilings = DAILY) -> Meter:
    return Meter(ceilings, prices=PRICES)


class Drive:
    """A run that is being driven, and what it plans to ask."""

    def __init__(self, store: Store, claim: Claim, journal: RunJournal) -> None:
        self.store = store
        self.claim = claim
        self.journal = journal
        self.plan = CallPlan(
            scope=BillingScope(
                user_id="ada",
                agent_id="oracle",
                session_key="oracle:web:a:main",
                run_id=claim.run_id,
                attempt=claim.attempt,
            ),
            step_key="loop[1]/ask",
            provider="openai",
            model="oak",
            input_tokens=100,
            max_output_tokens=300,
            at=AT,
        )

    async def reserve(self, given: Meter, **changes: Any) -> Reservation:
        self.plan = replace(self.plan, **changes)
        return await self.journal.commit(given.reserve(self.plan))

    async def settle(self, given: Meter, hold: Reservation, *used: ModelUsage) -> bool:
        return await self.journal.commit(given.settle(hold, self.plan, used))

    async def records(self) -> list[TokenRecord]:
        return await records_of(self.store, "ada")


async def driven(store: Store) -> Drive:
    talk = await store.conversations.create("ada")
    await store.runs.accept("ada", talk.id, NewMessage("user", "?", 1))
    found = await store.runs.claim_next(talk.id)
    assert isinstance(found, ClaimedRun)
    return Drive(store, found, await store.journals.open(found))


async def budgets(store: Store) -> dict[str, tuple[int, int]]:
    """What each budget has used and holds."""
    return {f"{b.scope} {b.unit.value}": (b.used, b.reserved) for b in await budgets_of(store)}


def said(usage: Usage, *, provider: str = "openai", model: str = "oak") -> ModelUsage:
    return ModelUsage(provider, model, usage)


async def test_a_call_is_reserved_settled_and_recorded(store: Store) -> None:
    """The most it can cost is put aside; what the wire says is counted, and kept on record."""
    run = await driven(store)
    hold = await run.reserve(meter())
    assert await budgets(store) == {
        "daily tokens": (0, 400),
        "daily usd": (0, 4 * NANOS_PER_USD // 10),
    }
    usage = Usage(100, 50, cache_read_tokens=40, cache_write_tokens=5, reasoning_tokens=20)
    assert await run.settle(meter(), hold, said(usage, model="oak-2026"))
    assert await budgets(store) == {
        "daily tokens": (150, 0),
        "daily usd": (15 * NANOS_PER_USD // 100, 0),
    }
    (entry,) = await run.records()
    assert asdict(entry) == {
        "user_id": "ada",
        "agent_id": "oracle",
        "provider": "openai",
        "model": "oak-2026",
        "input_tokens": 100,
        "output_tokens": 50,
        "cost_estimate_usd": 0.15,
        "session_key": "oracle:web:a:main",
        "run_id": run.plan.scope.run_id,
        "cache_read_tokens": 40,
        "cache_write_tokens": 5,
        "reasoning_tokens": 20,
        "estimated": False,
        "timestamp": AT,
    }


async def test_a_call_past_a_ceiling_is_refused(store: Store) -> None:
    """Nothing is put aside then, and the run can go on without it."""
    run = await driven(store)
    with pytest.raises(BudgetExceeded, match="the budget of daily for 2026-11-16 does not allow"):
        await run.reserve(meter(), max_output_tokens=901)
    assert await budgets(store) == {}
    await run.reserve(meter(), max_output_tokens=900)


async def test_runs_at_once_stay_under_the_ceiling(store: Store) -> None:
    """Twelve runs reserve 100 tokens each where 1,000 are allowed: ten may."""
    runs = [await driven(store) for _ in range(12)]

    async def try_(run: Drive) -> bool:
        try:
            hold = await run.reserve(meter(), max_output_tokens=0)
        except BudgetExceeded:
            return False
        return await run.settle(meter(), hold, said(Usage(100)))

    assert sum(await asyncio.gather(*map(try_, runs))) == 10
    assert (await budgets(store))["daily tokens"] == (1000, 0)
    assert len(await runs[0].records()) == 10


async def test_without_a_known_price_there_is_no_call_under_dollars(store: Store) -> None:
    """Unknown is not zero: what to set is in the hint."""
    run = await driven(store)
    with pytest.raises(BudgetExceeded) as refused:
        await run.reserve(meter(), provider="openai-compatible", model='my "own"')
    assert str(refused.value) == (
        'a budget in US dollars does not allow openai-compatible/my "own": its price is '
        'unknown. Set its price under [prices."openai-compatible/my \\"own\\""], or 0 if '
        "it is free."
    )
    assert await budgets(store) == {}


async def test_without_a_ceiling_in_dollars_any_model_may_be_called(store: Store) -> None:
    """Its cost is on record as unknown, its tokens are counted as they are."""
    run, tokens_only = await driven(store), meter(Ceilings(user=Ceiling(tokens=1000)))
    hold = await run.reserve(tokens_only, provider="openai-compatible", model="beech")
    await run.settle(
        tokens_only, hold, said(Usage(60, 40), provider="openai-compatible", model="beech")
    )
    assert await budgets(store) == {"user:ada tokens": (100, 0)}
    (entry,) = await run.records()
    assert (entry.cost_estimate_usd, bool(entry.estimated)) == (None, False)


async def test_whoever_may_answer_is_paid_for(store: Store) -> None:
    """Of a chain the dearest is put aside; one without a price is refused beforehand."""
    run = await driven(store)
    with pytest.raises(BudgetExceeded, match="openai-compatible/beech: its price is unknown"):
        await run.reserve(meter(), fallbacks=(("openai", "elm"), ("openai-compatible", "beech")))
    await run.reserve(meter(), fallbacks=(("openai", "elm"),))
    assert (await budgets(store))["daily usd"] == (0, 8 * NANOS_PER_USD // 10)


@pytest.mark.parametrize(
    ("provider", "answered", "dollars"),
    [
        ("openai", "oak", 0.1),
        ("openai", "elm", 0.2),
        ("openai", "elm-2026-01", 0.2),  # oak or elm? the dearest
        ("openai-compatible", "yew.gguf", 1.0),  # there is but one of that provider
        ("extractive", "extractive", 0.0),  # nobody bills it
    ],
)
async def test_the_price_is_that_of_the_name_asked_for(
    store: Store, provider: str, answered: str, dollars: float
) -> None:
    """Wires answer with names of their own, for which no price is set."""
    rich = meter(Ceilings(daily=Ceiling(usd=Decimal(100))))
    run = await driven(store)
    hold = await run.reserve(rich, fallbacks=(("openai", "elm"), ("openai-compatible", "yew")))
    await run.settle(rich, hold, said(Usage(50, 50), provider=provider, model=answered))
    (entry,) = await run.records()
    assert (entry.model, entry.cost_estimate_usd) == (answered, dollars)
    assert await budgets(store) == {"daily usd": (int(dollars * NANOS_PER_USD), 0)}


async def test_a_cost_on_the_wire_comes_first(store: Store) -> None:
    """And a billionth of a dollar more is never a billionth less."""
    run = await driven(store)
    hold = await run.reserve(meter())
    await run.settle(meter(), hold, said(Usage(10, 10, cost_usd=0.0000000001)))
    assert (await budgets(store))["daily usd"] == (1, 0)


async def test_a_silent_provider_counts_with_all_the_call_could_use(store: Store) -> None:
    """It may have billed that much; the record says that it is an estimate."""
    run = await driven(store)
    hold = await run.reserve(meter())
    await run.settle(meter(), hold, said(Usage()))
    assert await budgets(store) == {
        "daily tokens": (400, 0),
        "daily usd": (4 * NANOS_PER_USD // 10, 0),
    }
    (entry,) = await run.records()
    assert (entry.input_tokens, entry.output_tokens, bool(entry.estimated)) == (100, 300, True)


async def test_an_estimate_of_the_callers_is_taken_and_marked(store: Store) -> None:
    """Of a call that was cut, the caller knows what it has read."""
    run = await driven(store)
    hold = await run.reserve(meter())
    await run.settle(meter(), hold, said(Usage(100, 7, estimated=True)))
    assert (await budgets(store))["daily tokens"] == (107, 0)
    (entry,) = await run.records()
    assert (entry.output_tokens, bool(entry.estimated)) == (7, True)


async def test_an_estimate_is_no_more_than_was_put_aside(store: Store) -> None:
    """What was sent is known from the plan; only a provider can say that it was more."""
    run = await driven(store)
    hold = await run.reserve(meter())
    await run.settle(meter(), hold, said(Usage(0, 5000, estimated=True)))
    assert (await budgets(store))["daily tokens"] == (400, 0)
    (entry,) = await run.records()
    assert (entry.input_tokens, entry.output_tokens) == (100, 300)


async def test_new_terms_hold_from_the_next_call_on(store: Store) -> None:
    """Ceilings and prices change together; a call on its way keeps what was put aside for it."""
    run = await driven(store)
    given = meter()
    hold = await run.reserve(given)
    given.update(
        Ceilings(daily=Ceiling(tokens=500)),
        prices=Prices({"oak": Price(Decimal(0), Decimal(0))}),
        wait_seconds=0.0,
    )
    assert given.ceilings.daily == Ceiling(tokens=500)
    with pytest.raises(BudgetExceeded):
        await run.reserve(given)
    await run.settle(given, hold, said(Usage(100, 50)))
    assert await budgets(store) == {"daily tokens": (150, 0), "daily usd": (0, 0)}
    assert [entry.cost_estimate_usd for entry in await run.records()] == [0.0]


async def test_a_call_that_came_to_nothing_costs_nothing(store: Store) -> None:
    run = await driven(store)
    hold = await run.reserve(meter())
    assert await run.settle(meter(), hold)
    assert await budgets(store) == {"daily tokens": (0, 0), "daily usd": (0, 0)}
    assert await run.records() == []


async def test_settling_again_counts_and_records_nothing(store: Store) -> None:
    """Whatever is said the second time."""
    run = await driven(store)
    hold = await run.reserve(meter())
    assert await run.settle(meter(), hold, said(Usage(1, 1)))
    assert not await run.settle(meter(), hold, said(Usage(500, 500)))
    assert (await budgets(store))["daily tokens"] == (2, 0)
    assert len(await run.records()) == 1


async def test_a_run_can_end_with_its_settlement(store: Store) -> None:
    """In one transaction: what is left open there counts in full, and is recorded as a guess."""
    run = await driven(store)
    settled, cut = await run.reserve(meter()), await run.reserve(meter(), step_key="loop[2]/ask")
    run.journal.add_to_next_commit(meter().settle(settled, run.plan, [said(Usage(20, 10))]))
    answer = NewMessage("assistant", "so be it", 3)
    await run.journal.end(RunEnd(status=RunStatus.SUCCEEDED, messages=(answer,)))
    assert cut != settled
    assert (await budgets(store))["daily tokens"] == (430, 0)
    records = {entry.output_tokens: bool(entry.estimated) for entry in await run.records()}
    assert records == {10: False, 300: True}


async def test_each_attempt_has_a_record_and_all_are_counted(store: Store) -> None:
    """What was used was billed, whether it became an answer or not."""
    run = await driven(store)
    hold = await run.reserve(meter())
    await run.settle(meter(), hold, said(Usage(100, 3)), said(Usage(100, 50)))
    assert (await budgets(store))["daily tokens"] == (253, 0)
    assert [entry.output_tokens for entry in await run.records()] == [3, 50]


async def test_one_cost_unknown_leaves_all_that_was_put_aside(store: Store) -> None:
    """A sum with an unknown in it is unknown."""
    run = await driven(store)
    hold = await run.reserve(meter())
    await run.settle(
        meter(), hold, said(Usage(1, 1)), said(Usage(1, 1), provider="nobody", model="knows")
    )
    assert (await budgets(store))["daily usd"] == (4 * NANOS_PER_USD // 10, 0)
    assert [entry.cost_estimate_usd for entry in await run.records()] == [0.002, None]


async def test_a_lying_account_takes_nothing_back(store: Store) -> None:
    """Tokens below zero are none."""
    run = await driven(store)
    hold = await run.reserve(meter())
    await run.settle(meter(), hold, said(Usage(-500, 20)))
    assert (await budgets(store))["daily tokens"] == (20, 0)
