"""Spending is held before a call and settled after it; nothing passes a ceiling."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from dodona.core.domain.budgets import BudgetLimit
from dodona.core.domain.conversations.conversation import Claim, Conversation, RunStatus
from dodona.core.errors import BudgetExceeded, as_json, from_json
from dodona.store import (
    NANOS_PER_USD,
    BudgetLine,
    BudgetUnit,
    Reservation,
    Store,
    TokenRecord,
    reserve,
    settle,
)
from dodona.store.db.database import Transaction
from dodona.store.schema import budgets, reservations
from tests.conformance.store.saying import (
    answer,
    asked,
    claimed,
    deadlocks,
    ended,
    next_of,
    rows_of,
)
from tests.stored import (
    add_record,
    budgets_of,
    records_of,
    reserve_now,
    settle_now,
)


def tokens(amount: int, ceiling: int = 1000, scope: str = "user:ada") -> BudgetLine:
    return BudgetLine(scope, "2026-11-16", BudgetUnit.TOKENS, amount, ceiling)


def dollars(amount: float, ceiling: float = 10, scope: str = "user:ada") -> BudgetLine:
    return BudgetLine(
        scope, "2026-11", BudgetUnit.USD, int(amount * NANOS_PER_USD), int(ceiling * NANOS_PER_USD)
    )


async def state(store: Store) -> dict[tuple[str, str], tuple[int, int]]:
    """What each budget has used and holds."""
    return {(b.scope, b.unit.value): (b.used, b.reserved) for b in await budgets_of(store)}


async def test_a_call_holds_and_settles(store: Store) -> None:
    """First what it may use at most is put aside, then what it used is counted."""
    hold = await reserve_now(store, [tokens(400), dollars(2)])
    assert await state(store) == {
        ("user:ada", "tokens"): (0, 400),
        ("user:ada", "usd"): (0, 2 * NANOS_PER_USD),
    }
    assert await settle_now(store, hold, tokens=250, nanos=NANOS_PER_USD)
    assert await state(store) == {
        ("user:ada", "tokens"): (250, 0),
        ("user:ada", "usd"): (NANOS_PER_USD, 0),
    }
    (row,) = await rows_of(store, reservations)
    assert (row["status"], bool(row["estimated"]), row["settled_at"] is None) == (
        "settled",
        False,
        False,
    )


async def test_a_budget_has_its_scope_period_and_unit(store: Store) -> None:
    """The period is in the key: with the next one there is nothing to reset."""
    today = BudgetLine("user:ada", "2026-11-16", BudgetUnit.TOKENS, 10, 10)
    await reserve_now(store, [today])
    with pytest.raises(BudgetExceeded):
        await reserve_now(store, [today])
    await reserve_now(store, [BudgetLine("user:ada", "2026-11-17", BudgetUnit.TOKENS, 10, 10)])
    await reserve_now(store, [BudgetLine("user:bob", "2026-11-16", BudgetUnit.TOKENS, 10, 10)])
    await reserve_now(store, [BudgetLine("user:ada", "2026-11-16", BudgetUnit.USD, 10, 10)])
    assert len(await budgets_of(store)) == 4


async def test_any_number_of_reservations_at_once_stay_under_the_ceiling(
    store: Store, second: Store
) -> None:
    """64 calls in two processes, three budgets each in any order: as many as fit, no more."""
    lines = [tokens(30, 1000), tokens(30, 5000, "agent:oracle"), dollars(0.1, 100)]

    async def call(number: int) -> bool:
        mine = (store, second)[number % 2]
        turned = lines[number % 3 :] + lines[: number % 3]
        try:
            hold = await reserve_now(mine, turned if number % 4 else turned[::-1])
        except BudgetExceeded:
            return False
        if number % 5 == 0:
            await settle_now(mine, hold, tokens=30, nanos=NANOS_PER_USD // 10)
        return True

    done = await asyncio.gather(*(call(number) for number in range(64)))
    assert sum(done) == 33  # 33 × 30 ≤ 1000
    assert sum((await state(store))["user:ada", "tokens"]) == 990
    for budget in await budgets_of(store):
        assert budget.used + budget.reserved <= budget.ceiling
        assert budget.used + budget.reserved in (990, 33 * NANOS_PER_USD // 10)


async def test_settling_at_once_counts_once(store: Store, second: Store) -> None:
    """However often and by whomever; only the first is told that it did."""
    hold = await reserve_now(store, [tokens(100)])
    found = await asyncio.gather(
        *(settle_now(each, hold, tokens=60, nanos=0) for _ in range(8) for each in (store, second))
    )
    assert sorted(found) == [False] * 15 + [True]
    assert not await settle_now(store, hold, tokens=60, nanos=0)
    assert not await settle_now(store, Reservation(hold.id + 1), tokens=60, nanos=0)
    assert await state(store) == {("user:ada", "tokens"): (60, 0)}


TODAY = "It resets on 2026-11-17 at 00:00 UTC."
RAISE = "To raise it: dodona budget set user --{} N"


@pytest.mark.parametrize(
    ("first", "settled", "then", "words"),
    [
        (
            tokens(1200, 5000),
            True,
            tokens(4000, 5000),
            "the budget of user:ada for 2026-11-16 does not allow 4,000 tokens more: "
            f"1,200 tokens of 5,000 tokens are used. {TODAY} {RAISE.format('tokens')}",
        ),
        (
            tokens(1200, 5000),
            False,
            tokens(3801, 5000),
            "the budget of user:ada for 2026-11-16 does not allow 3,801 tokens more: "
            "0 tokens of 5,000 tokens are used, 1,200 tokens reserved for calls in progress. "
            "Calls in progress have reserved the rest: try again later. "
            f"{TODAY} {RAISE.format('tokens')}",
        ),
        (
            dollars(1.5, 2),
            True,
            dollars(0.75, 2),
            "the budget of user:ada for 2026-11 does not allow $0.7500 more: $1.5000 of $2.0000 "
            "are used. It resets on 2026-12-01 at 00:00 UTC. "
            f"{RAISE.format('usd')}",
        ),
        (
            tokens(1200, 5000),
            True,
            tokens(5001, 5000),
            "the budget of user:ada for 2026-11-16 does not allow 5,001 tokens more: "
            "1,200 tokens of 5,000 tokens are used. The call needs more than the whole budget. "
            f"{RAISE.format('tokens')}",
        ),
        (
            BudgetLine("user:ada", "-", BudgetUnit.TOKENS, 10, 10),
            True,
            BudgetLine("user:ada", "-", BudgetUnit.TOKENS, 1, 10),
            "the budget of user:ada does not allow 1 tokens more: 10 tokens of 10 tokens are "
            f"used. It does not reset. {RAISE.format('tokens')}",
        ),
    ],
    ids=["used", "held", "dollars", "too large", "total"],
)
async def test_what_a_refusal_says(
    store: Store, *, first: BudgetLine, settled: bool, then: BudgetLine, words: str
) -> None:
    """Which budget, how much was asked for, how much is used and held, and what to do."""
    hold = await reserve_now(store, [first])
    if settled:
        known = first.amount if first.unit is BudgetUnit.USD else 0
        await settle_now(store, hold, tokens=first.amount, nanos=known)
    with pytest.raises(BudgetExceeded) as refused:
        await reserve_now(store, [then])
    assert str(refused.value) == words


async def test_a_refusal_has_its_figures(store: Store) -> None:
    """For programs: also through JSON and back, as a run's error goes."""
    await reserve_now(store, [dollars(1.5, 2)])
    with pytest.raises(BudgetExceeded) as refused:
        await reserve_now(store, [dollars(0.75, 2)])
    told = as_json(refused.value)["error"]
    assert told["details"] == {
        "scope": "user:ada",
        "period": "2026-11",
        "unit": "usd",
        "limit": 2.0,
        "used": 0.0,
        "held": 1.5,
        "wanted": 0.75,
        "resets_at": "2026-12-01T00:00:00Z",
        "retry_after": 5,
    }
    again = from_json(told)
    assert type(again) is BudgetExceeded
    assert again.details == told["details"]


# -- ceilings that are set later -------------------------------------------------------------------


def spent(user: str, total: int, usd: float, *, at: str, session: str = "s") -> TokenRecord:
    moment = datetime.fromisoformat(at).replace(tzinfo=UTC).timestamp()
    return TokenRecord(
        user, "oracle", "openai", "oak", total - 1, 1, usd, session_key=session, timestamp=moment
    )


@pytest.fixture
async def used(store: Store) -> Store:
    """A store in which two have spent something without a ceiling."""
    for entry in (
        spent("ada", 100, 0.25, at="2026-10-31T23:59:59", session="a"),
        spent("ada", 10, 0.5, at="2026-11-16T00:00:00", session="a"),
        spent("bob", 1, 1.0, at="2026-11-16T23:59:59", session="b"),
    ):
        await add_record(store, entry)
    return store


@pytest.mark.parametrize(
    ("kind", "name", "period", "tokens_used", "usd_used"),
    [
        ("daily", "", "2026-11-16", 11, 1.5),
        ("monthly", "", "2026-11", 11, 1.5),
        ("monthly", "", "2026-10", 100, 0.25),
        ("user", "ada", "-", 110, 0.75),
        ("session", "ada:a", "-", 110, 0.75),
        ("session", "bob:a", "-", 0, 0),
        ("agent", "oracle", "-", 111, 1.75),
    ],
)
async def test_a_ceiling_counts_what_was_spent_before_it_was_set(
    used: Store, kind: str, name: str, period: str, tokens_used: int, usd_used: float
) -> None:
    """From the records, once: a budget of a day is no new one because it was set at noon."""
    scope = f"{kind}:{name}" if name else kind
    lines = [
        BudgetLine(scope, period, BudgetUnit.TOKENS, 5, tokens_used + 5),
        BudgetLine(scope, period, BudgetUnit.USD, 5, 2 * NANOS_PER_USD),
    ]
    hold = await reserve_now(used, lines)
    assert {b.unit: (b.used, b.reserved) for b in await budgets_of(used)} == {
        BudgetUnit.TOKENS: (tokens_used, 5),
        BudgetUnit.USD: (round(usd_used * NANOS_PER_USD), 5),
    }
    await settle_now(used, hold, tokens=5, nanos=0)
    with pytest.raises(BudgetExceeded):
        await reserve_now(used, lines)


async def test_who_sees_which_budgets(used: Store) -> None:
    """One's own user and sessions, and what is everybody's; who may see all sees all."""
    for name in ("ada:a", "a_a:a", "bob:a", "bob:b"):  # _ is no wildcard
        await reserve_now(used, [BudgetLine(f"session:{name}", "-", BudgetUnit.TOKENS, 1, 1000)])
    for user in ("ada", "bob"):
        await reserve_now(used, [BudgetLine(f"user:{user}", "-", BudgetUnit.TOKENS, 1, 1000)])

    async def seen(kind: str, user: str | None, period: str = "-") -> list[tuple[str, int, int]]:
        limit = BudgetLimit(kind, period, BudgetUnit.TOKENS, 1000)
        found = await used.budgets.status(limit, user_id=user)
        return [(budget.scope, budget.used, budget.reserved) for budget in found]

    assert await seen("user", "ada") == [("user:ada", 110, 1)]
    assert await seen("user", "nobody") == [("user:nobody", 0, 0)]
    assert await seen("user", None) == [("user:ada", 110, 1), ("user:bob", 1, 1)]
    assert await seen("session", "bob") == [("session:bob:b", 1, 1), ("session:bob:a", 0, 1)]
    assert await seen("session", "a_a") == [("session:a_a:a", 0, 1)]
    assert len(await seen("session", None)) == 4
    assert await seen("daily", "ada", "2026-11-16") == [("daily", 11, 0)]
    assert await seen("agent", "ada") == []


async def test_the_last_token_can_be_used(store: Store) -> None:
    """A ceiling is reached, not approached; and zero means nothing."""
    await reserve_now(store, [tokens(1000)])
    with pytest.raises(BudgetExceeded):
        await reserve_now(store, [tokens(1)])
    with pytest.raises(BudgetExceeded):
        await reserve_now(store, [tokens(1, 0, "user:none")])


async def test_a_refusal_holds_nothing(store: Store) -> None:
    """Also not in the budgets that would have allowed it, whatever their order."""
    await reserve_now(store, [tokens(5, scope="m")])
    before = await rows_of(store, budgets)
    for scope in ("a", "z"):
        with pytest.raises(BudgetExceeded):
            await reserve_now(store, [tokens(10, scope=scope), tokens(10, 10, "m"), dollars(1)])
    assert await rows_of(store, budgets) == before
    assert len(await rows_of(store, reservations)) == 1


async def test_the_same_budget_twice_in_one_call_counts_twice(store: Store) -> None:
    await reserve_now(store, [tokens(40, 100), tokens(40, 100)])
    assert await state(store) == {("user:ada", "tokens"): (0, 80)}
    with pytest.raises(BudgetExceeded):
        await reserve_now(store, [tokens(15, 100), tokens(15, 100)])


async def test_a_raised_ceiling_counts_from_now_on(store: Store) -> None:
    """What is used stays used."""
    await reserve_now(store, [tokens(90, 100)])
    await reserve_now(store, [tokens(90, 200)])
    with pytest.raises(BudgetExceeded):
        await reserve_now(store, [tokens(30, 200)])


async def test_an_unknown_price_counts_in_full(store: Store) -> None:
    """Tokens are known, dollars are not: all that was put aside is taken as spent, and marked."""
    hold = await reserve_now(store, [tokens(100), dollars(2)])
    assert await settle_now(store, hold, tokens=70, nanos=None)
    assert await state(store) == {
        ("user:ada", "tokens"): (70, 0),
        ("user:ada", "usd"): (2 * NANOS_PER_USD, 0),
    }
    (row,) = await rows_of(store, reservations)
    assert row["estimated"]


async def test_a_call_may_turn_out_larger_than_its_reservation(store: Store) -> None:
    """What was used is used: the next call is refused."""
    hold = await reserve_now(store, [tokens(900)])
    assert await settle_now(store, hold, tokens=1100, nanos=0)
    assert await state(store) == {("user:ada", "tokens"): (1100, 0)}
    with pytest.raises(BudgetExceeded):
        await reserve_now(store, [tokens(1)])


# -- in a run --------------------------------------------------------------------------------------


async def reserved(store: Store, talk: Conversation) -> tuple[Any, Reservation]:
    """A claimed run with 100 tokens and a dollar put aside."""
    claim = await asked(store, talk)
    journal = await store.journals.open(claim)
    where = {"run_id": claim.run_id, "step_key": "ask", "attempt": claim.attempt}
    return claim, await journal.commit(lambda tx: reserve(tx, [tokens(100), dollars(1)], **where))


async def test_the_end_of_a_run_and_its_settlement_are_one(
    store: Store, talk: Conversation
) -> None:
    """When one fails, neither is there."""
    claim, hold = await reserved(store, talk)

    def pay(tx: Any) -> None:
        assert settle(tx, hold, tokens=80, nanos=7)

    def fail(tx: Any) -> None:
        raise RuntimeError("no.")

    with pytest.raises(RuntimeError):
        await ended(store, claim, RunStatus.SUCCEEDED, answer(), also=[pay, fail])
    assert (await state(store))["user:ada", "tokens"] == (0, 100)
    assert await ended(store, claim, RunStatus.SUCCEEDED, answer(), also=[pay])
    assert await state(store) == {("user:ada", "tokens"): (80, 0), ("user:ada", "usd"): (7, 0)}
    (row,) = await rows_of(store, reservations)
    assert not row["estimated"]


@pytest.mark.parametrize("status", [s for s in RunStatus if s.has_ended])
async def test_a_run_that_ends_leaves_nothing_held(
    store: Store, talk: Conversation, status: RunStatus
) -> None:
    """What nobody settled counts in full: the provider may have billed it."""
    claim, _ = await reserved(store, talk)
    assert await ended(store, claim, status)
    assert await state(store) == {
        ("user:ada", "tokens"): (100, 0),
        ("user:ada", "usd"): (NANOS_PER_USD, 0),
    }
    (row,) = await rows_of(store, reservations)
    assert (row["status"], bool(row["estimated"])) == ("settled", True)


async def test_a_later_attempt_settles_what_the_one_before_held(
    store: Store, talk: Conversation
) -> None:
    """In full and marked as estimated; the zombie's own settlement comes too late."""
    claim, hold = await reserved(store, talk)
    store.runs.release_claim(claim)
    await claimed(store, talk)
    assert (await state(store))["user:ada", "tokens"] == (100, 0)
    assert not await settle_now(store, hold, tokens=1, nanos=1)
    assert (await state(store))["user:ada", "tokens"] == (100, 0)


async def test_what_was_spent_outlives_the_conversation(store: Store, talk: Conversation) -> None:
    """Deleting what was said does not give money back."""
    claim, _ = await reserved(store, talk)
    await ended(store, claim, RunStatus.SUCCEEDED, answer())
    before = await state(store)
    await store.conversations.delete("ada", talk.id)
    assert await state(store) == before
    (row,) = await rows_of(store, reservations)
    assert row["run_id"] is None


async def test_a_call_outside_a_run_is_settled_when_its_process_has_gone(
    store: Store, url: str
) -> None:
    """In full, by whoever opens the store next; those of the living stay held."""
    async with await Store.open(url, redact=str) as gone:
        await reserve_now(gone, [tokens(40)])
        await reserve_now(store, [tokens(2)])
    assert await state(store) == {("user:ada", "tokens"): (0, 42)}
    async with await Store.open(url, redact=str):
        assert await state(store) == {("user:ada", "tokens"): (40, 2)}


async def test_runs_that_end_at_once_settle_side_by_side(
    store: Store, second: Store, url: str
) -> None:
    """Budgets are taken in one order by all, also by a run that has several calls to settle."""
    before = deadlocks(url)
    talks = [await store.conversations.create("ada") for _ in range(8)]
    stores = [store, second] * 4

    async def one(number: int) -> None:
        mine = stores[number]
        claim = await asked(mine, talks[number])
        journal = await mine.journals.open(claim)
        scopes = ["a", "b"] if number % 2 else ["b", "a"]
        for scope in scopes:
            await journal.commit(
                lambda tx, scope=scope: reserve(
                    tx,
                    [tokens(10, scope=scope)],
                    run_id=claim.run_id,
                    step_key=scope,
                    attempt=claim.attempt,
                )
            )
        await ended(mine, claim, RunStatus.SUCCEEDED, answer())

    await asyncio.gather(*(one(number) for number in range(8)))
    assert await state(store) == {("a", "tokens"): (80, 0), ("b", "tokens"): (80, 0)}
    assert deadlocks(url) == before


async def test_a_call_that_a_crash_cut_has_its_record(store: Store, talk: Conversation) -> None:
    """In full and marked as a guess; one that was settled has the record of its settlement only."""
    claim = await asked(store, talk)
    if_cut = TokenRecord("ada", "oracle", "anthropic", "claude", 100, 50, 0.25, run_id=claim.run_id)
    journal = await store.journals.open(claim)

    def held(tx: Transaction) -> Reservation:
        return reserve(tx, [], run_id=claim.run_id, step_key="ask", attempt=1, crash_record=if_cut)

    settled = await journal.commit(held)
    await journal.commit(held)
    await journal.commit(lambda tx: settle(tx, settled, tokens=3, nanos=0))
    store.runs.release_claim(claim)
    again = await next_of(store, talk.id)
    assert isinstance(again, Claim)
    (entry,) = await records_of(store, "ada")
    assert (entry.output_tokens, entry.cost_estimate_usd, bool(entry.estimated)) == (50, 0.25, True)
