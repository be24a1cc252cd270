"""Hundreds of calls at once, of any size, some of which die on the way: no ceiling is passed."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from dodona.core.domain.budgets import BillingScope, CallPlan, ModelUsage
from dodona.core.domain.conversations.conversation import Claim, Conversation, RunEnd, RunStatus
from dodona.core.errors import BudgetExceeded
from dodona.core.ports.model import Usage
from dodona.metering import Ceiling, Ceilings, Meter, Price, Prices
from dodona.store import BudgetUnit, Store
from dodona.store.schema import reservations, token_records
from tests.conformance.store.saying import answer, asked, deadlocks, ended, next_of, rows_of
from tests.stored import budgets_of

PROCESSES = 4
RUNS = 120  # each makes up to four calls, one after the other
LOOSE = 300  # calls outside any run
CEILINGS = Ceilings(
    session=Ceiling(tokens=15_000),
    agent=Ceiling(tokens=100_000, usd=Decimal("0.09")),
    user=Ceiling(tokens=70_000),
    daily=Ceiling(tokens=110_000),
    monthly=Ceiling(usd=Decimal("0.1")),
)
PRICES = Prices({"oak": Price(Decimal("0.9"), Decimal("1.1"))})
METER = Meter(CEILINGS, prices=PRICES)
NAMES = {"session": ("user_id", "session_key"), "agent": ("agent_id",), "user": ("user_id",)}
USERS = ("ada", "bob", "eve")
AGENTS = ("oracle", "scribe")
# The last second of a month and the first of the next: a run may have calls in both.
DAYS = [datetime(2026, 12, 1, tzinfo=UTC).timestamp() + second for second in (-1, 0)]


@pytest.fixture
async def processes(store: Store, url: str) -> AsyncIterator[list[Store]]:
    """Several, as far as the store can tell; the first one outlives the others."""
    async with AsyncExitStack() as stack:
        opened = [await Store.open(url, redact=str) for _ in range(PROCESSES - 1)]
        for each in opened:
            stack.push_async_callback(each.close)
        yield [store, *opened]


class Traffic:
    """Calls as chance wants them; those that it abandons are left as a crash leaves them."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)  # noqa: S311 - not for secrets
        self.came_to: Counter[str] = Counter()

    def payer(self) -> tuple[str, str, str]:
        """A user, an agent and a session. A run has one, whatever it calls."""
        user, agent = self.chance.choice(USERS), self.chance.choice(AGENTS)
        return user, agent, f"{agent}:web:home:{self.chance.randrange(3)}"  # the same of all users

    def plan(
        self, store: Store, payer: tuple[str, str, str], *, at: float, claim: Claim | None = None
    ) -> CallPlan:
        chance = self.chance
        return CallPlan(
            scope=BillingScope(
                user_id=payer[0],
                agent_id=payer[1],
                session_key=payer[2],
                run_id=claim.run_id if claim else None,
                attempt=claim.attempt if claim else 0,
                owner=None if claim else store.owner,
            ),
            step_key="ask",
            provider="openai",
            model="oak",
            input_tokens=chance.randrange(900),
            max_output_tokens=chance.randrange(1, 900),
            at=at,
        )

    def used(self, plan: CallPlan) -> list[ModelUsage]:
        """Nothing, a part, an estimate that is too high, or no account at all."""
        share = self.chance.random()
        part = Usage(int(plan.input_tokens * share), int(plan.max_output_tokens * share))
        guess = Usage(0, plan.max_output_tokens * 3, estimated=True)
        usage = self.chance.choice((None, part, part, guess, Usage()))
        return [] if usage is None else [ModelUsage("openai", "oak", usage)]

    async def loose(self, store: Store) -> None:
        """A call outside any run."""
        plan = self.plan(store, self.payer(), at=self.chance.choice(DAYS))
        try:
            hold = await store.commit(METER.reserve(plan))
        except BudgetExceeded:
            self.came_to["refused"] += 1
            return
        self.came_to["allowed"] += 1
        await asyncio.sleep(self.chance.random() / 100)
        if self.chance.random() < 0.2:
            self.came_to["abandoned"] += 1
        else:
            await store.commit(METER.settle(hold, plan, self.used(plan)))

    async def run(self, store: Store) -> Claim | None:
        """A run that makes some calls; its claim, if it was abandoned."""
        talk = await store.conversations.create("ada")
        claim = await asked(store, talk)
        journal = await store.journals.open(claim)
        payer = self.payer()
        for at in sorted(self.chance.choices(DAYS, k=self.chance.randrange(1, 5))):
            plan = self.plan(store, payer, at=at, claim=claim)
            try:
                hold = await journal.commit(METER.reserve(plan))
            except BudgetExceeded:
                self.came_to["refused"] += 1
                break
            self.came_to["allowed"] += 1
            await asyncio.sleep(self.chance.random() / 100)
            if self.chance.random() < 0.2:
                self.came_to["abandoned"] += 1
                return claim
            journal.add_to_next_commit(METER.settle(hold, plan, self.used(plan)))
        await journal.end(RunEnd(status=RunStatus.SUCCEEDED, messages=tuple(answer())))
        return None


async def watch(store: Store) -> None:
    """Look for a budget that has passed its ceiling, all the time."""
    while True:
        for budget in await budgets_of(store):
            assert budget.used + budget.reserved <= budget.ceiling, budget
        await asyncio.sleep(0.005)


@pytest.mark.parametrize("seed", [1, 2])
async def test_no_ceiling_is_passed_and_nothing_leaks(
    processes: list[Store], url: str, seed: int
) -> None:
    """Not for a moment, by any number of calls in several processes, whatever dies.

    In the end nothing is held, and each budget has used what the records of its scope say.
    """
    traffic, before = Traffic(seed), deadlocks(url)
    survivor, *mortal = processes
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        watching = group.create_task(watch(survivor))
        runs = [traffic.run(processes[n % PROCESSES]) for n in range(RUNS)]
        loose = [traffic.loose(processes[n % PROCESSES]) for n in range(LOOSE)]
        cut, *_ = await asyncio.gather(asyncio.gather(*runs), asyncio.gather(*loose))
        watching.cancel()
    assert min(traffic.came_to[each] for each in ("refused", "allowed", "abandoned")) > 5

    for each in mortal:
        await each.close()
    for claim in filter(None, cut):
        survivor.runs.release_claim(claim)
        talk = await survivor.conversations.get("ada", claim.conversation_id)
        await ended(survivor, await taken_over(survivor, talk), RunStatus.FAILED)
    while await held_by_others(survivor):
        await survivor.budgets.settle_orphaned()
    await survivor.close()
    async with await Store.open(url, redact=str) as after:
        await check_books(after)
    assert deadlocks(url) == before


async def taken_over(store: Store, talk: Conversation) -> Claim:
    """A run of a process that has just died: a server may take a moment to notice."""
    while True:
        found = await next_of(store, talk.id)
        if isinstance(found, Claim):
            return found
        await asyncio.sleep(0.01)


async def held_by_others(store: Store) -> bool:
    rows = await rows_of(store, reservations)
    return any(row["status"] == "held" and row["owner"] != store.owner for row in rows)


async def check_books(store: Store) -> None:
    spent: Counter[tuple[str, str, BudgetUnit]] = Counter()
    for row in await rows_of(store, token_records):
        day = datetime.fromtimestamp(row["timestamp"], UTC).date().isoformat()
        keys = [
            (":".join([kind, *(row[name] for name in names)]), "-") for kind, names in NAMES.items()
        ]
        for key in (*keys, ("daily", day), ("monthly", day[:7])):
            spent[*key, BudgetUnit.TOKENS] += row["input_tokens"] + row["output_tokens"]
            spent[*key, BudgetUnit.USD] += round(row["cost_estimate_usd"] * 10**9)
    budgets = await budgets_of(store)
    assert {budget.reserved for budget in budgets} == {0}
    assert all(budget.used <= budget.ceiling for budget in budgets)
    used = {(b.scope, b.period, b.unit): b.used for b in budgets}
    assert used == {key: spent[key] for key in used}
