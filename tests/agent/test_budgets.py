"""Spending: nothing is called beyond a ceiling, and every call has its record."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from pathlib import Path

import pytest

from dodona.core.domain.conversations.conversation import RunRequest, RunStatus
from dodona.core.errors import BudgetExceeded, ProviderError, ProviderErrorKind
from dodona.core.ports.model import Model
from dodona.metering import Ceiling, Ceilings
from dodona.models.counted import CountedModel
from dodona.models.fallback import FallbackModel
from dodona.models.scripted.answers import BrokenAnswer
from dodona.models.scripted.model import ScriptedModel
from dodona.models.token_counter import OfflineTokenCounter
from tests.agent.opening import MOST_TOKENS, USER, bodies, calls, opened
from tests.agent.wire import says, wired
from tests.models.wire_server import Reply, sse
from tests.stored import budgets_of


async def test_nothing_is_called_beyond_a_ceiling(file: Path) -> None:
    """BudgetExceeded is the run's error: told in its last chunk, raised to whoever waits."""
    model = ScriptedModel(["Never said."])
    ceilings = Ceilings(user=Ceiling(tokens=10))
    async with opened(file, model, ceilings=ceilings) as here:
        run_id = await here.ask()
        chunks = await here.chunks(run_id)

        assert not model.requests
        (error,) = bodies(chunks, "error")
        assert error["error"]["code"] == "budget_exceeded"
        assert error["error"]["hint"]
        with pytest.raises(BudgetExceeded):
            await here.answer(run_id)
        assert (await here.run(run_id)).status is RunStatus.FAILED
        assert await here.records() == []
        (_, said) = await here.store.runs.messages(USER, run_id)
        assert "budget" in said.content


async def test_a_budget_that_ends_in_mid_run_keeps_what_was_done(file: Path) -> None:
    """The turns before it are saved, paid, and nothing stays held."""
    model = ScriptedModel([calls(("keyed", "1"), text="Let me see."), "Never said."])
    # A call may say 1,000 tokens: the first one fits, the second does not any more.
    ceilings = Ceilings(user=Ceiling(tokens=2300))
    async with opened(file, model, ceilings=ceilings) as here:
        await here.set(token_budget=200_000)
        first = await here.ask()
        await here.chunks(first)
        runs = [first]
        while (await here.run(runs[-1])).error is None and len(runs) < 9:
            runs.append(await here.ask("And?"))
            await here.chunks(runs[-1])
        failed = await here.run(runs[-1])

        assert failed.error is not None
        assert failed.error.code == "budget_exceeded"
        (budget,) = await budgets_of(here.store)
        records = await here.records()
        assert budget.reserved == 0
        assert budget.used == sum(r.input_tokens + r.output_tokens for r in records)
        assert len(records) == len(model.requests)


async def test_every_call_has_its_record(file: Path) -> None:
    """One for each request that reached the model: whose, which run, what the wire said."""
    first = says("Let me see.", calls=(("echo", '{"query": "1"}'),), usage=(200, 20))
    async with wired(first, says("Yes.", usage=(300, 3))) as (model, server):
        async with opened(file, model) as here:
            run_id = await here.ask()
            chunks = await here.chunks(run_id)
            one, two = await here.records()

            assert (one.input_tokens, one.output_tokens) == (200, 20)
            assert (two.input_tokens, two.output_tokens) == (300, 3)
            assert {(r.user_id, r.agent_id, r.run_id) for r in (one, two)} == {
                (USER, "oracle", run_id)
            }
            assert [one.estimated, two.estimated] == [False, False]
            assert bodies(chunks, "done")[0]["tokens_used"] == 523
        assert len(server.asked) == 2


async def test_a_refusal_costs_nothing(file: Path) -> None:
    """Of a request that the provider refused nothing is recorded, and nothing stays held."""
    refused = Reply([b'{"error": {"message": "no such model"}}'], status=404)
    ceilings = Ceilings(user=Ceiling(tokens=100_000))
    async with wired(refused) as (model, _), opened(file, model, ceilings=ceilings) as here:
        with pytest.raises(ProviderError, match="no such model"):
            await here.answered()

        assert await here.records() == []
        (budget,) = await budgets_of(here.store)
        assert (budget.used, budget.reserved) == (0, 0)


async def test_an_answer_that_broke_is_paid(file: Path) -> None:
    """What was streamed before the error was billed; it is kept as a part of an answer."""
    error = ProviderError(
        "the line broke.", kind=ProviderErrorKind.INTERRUPTED, provider="scripted"
    )
    model = ScriptedModel([BrokenAnswer("Half an answer", error)])
    async with opened(file, model) as here:
        run_id = await here.ask()
        chunks = await here.chunks(run_id)

        assert chunks[-1].as_json()["error"]["code"] == "provider_failed"
        (record,) = await here.records()
        assert record.output_tokens == 3
        (_, said) = await here.store.runs.messages(USER, run_id)
        assert said.content == "Half an answer"


async def test_a_dollar_budget_needs_a_price(file: Path) -> None:
    """A model whose price nobody knows is refused under a budget in dollars."""
    ceilings = Ceilings(daily=Ceiling(usd=Decimal(1)))
    async with wired(says("Yes.")) as (model, server):
        async with opened(file, model, ceilings=ceilings) as here:
            with pytest.raises(BudgetExceeded):
                await here.answered()
        assert not server.asked


async def test_runs_at_once_stay_under_a_ceiling_together(file: Path) -> None:
    """However many ask: what is put aside counts until it is settled."""
    count = 12
    model = ScriptedModel(["Yes."] * count)
    ceilings = Ceilings(daily=Ceiling(tokens=5000))
    async with opened(file, model, ceilings=ceilings) as here:
        users = [f"user-{number}" for number in range(count)]
        runs = await asyncio.gather(*(here.ask(user=user) for user in users))
        for run_id, user in zip(runs, users, strict=True):
            await here.chunks(run_id, user=user)
        (budget,) = await budgets_of(here.store)

        assert budget.used <= 5000
        assert budget.reserved == 0
        failed = [
            run_id
            for run_id, user in zip(runs, users, strict=True)
            if (await here.run(run_id, user=user)).status is RunStatus.FAILED
        ]
        assert len(failed) + len(model.requests) == count


async def test_a_session_of_the_oracle_has_its_budget(file: Path) -> None:
    """Each project of a user is one, without anybody having opened it."""
    model = ScriptedModel(["Yes.", "Never said."])
    async with opened(file, model, ceilings=Ceilings(session=Ceiling(tokens=2050))) as here:
        await here.answered()
        with pytest.raises(BudgetExceeded, match="session:ada:oracle:web:ada:default"):
            await here.answered()
        (record,) = await here.records()
        assert record.session_key == "oracle:web:ada:default"
    assert len(model.requests) == 1


async def test_equal_session_keys_of_two_users_have_two_budgets(file: Path) -> None:
    """What one user has spent in a session does not count against the other."""
    model = ScriptedModel(["Yes.", "Yes too.", "Never said."])
    async with opened(file, model, ceilings=Ceilings(session=Ceiling(tokens=2050))) as here:
        key = "oracle:chat:acme:eve"
        for user in (USER, "bob"):
            request = RunRequest(user_id=user, question="Why?", session_key=key)
            await here.answer(await here.oracle.submit(request), user=user)
        found = await here.agency.spending.budgets("bob", max_rows=10)
        assert [each.scope for each in found] == [f"session:bob:{key}"]
        assert [each.key for each in await here.agency.sessions.list("bob")] == [key]
        request = RunRequest(user_id=USER, question="And?", session_key=key)
        with pytest.raises(BudgetExceeded, match=f"session:{USER}:{key}"):
            await here.answer(await here.oracle.submit(request))
    assert len(model.requests) == 2


async def test_every_attempt_is_reserved_and_recorded(file: Path) -> None:
    """Of one that broke, what was heard is counted; the next one is a call of its own."""
    async with (
        wired(broken("Half of "), says("Yes.", usage=(100, 10))) as (model, _),
        opened(file, retrying(model), ceilings=LARGE) as here,
    ):
        await here.answered()
        first, second = await here.records()
        assert (bool(first.estimated), bool(second.estimated)) == (True, False)
        assert first.input_tokens > 100  # as it was planned
        assert first.output_tokens in (2, 3, 4)
        (budget,) = await budgets_of(here.store)
        assert budget.reserved == 0
        assert budget.used == first.input_tokens + first.output_tokens + 110


async def test_attempts_do_not_pass_a_ceiling_together(file: Path) -> None:
    """A call that may be billed again and again asks for leave each time."""
    ceilings = Ceilings(daily=Ceiling(tokens=2200))
    async with (
        wired(broken("Half of ")) as (model, server),
        opened(file, retrying(model), ceilings=ceilings) as here,
    ):
        with pytest.raises(BudgetExceeded):
            await here.answered()
        records = await here.records()
        (budget,) = await budgets_of(here.store)
        assert budget.used == sum(r.input_tokens + r.output_tokens for r in records)
        assert (budget.reserved, budget.used <= 2200) == (0, True)
        assert len(records) == len(server.asked) < 3


async def test_attempts_that_were_turned_down_cost_nothing(file: Path) -> None:
    """A provider that is overloaded has made nothing."""
    down = Reply([b'{"error": {"message": "overloaded"}}'], status=503)
    async with wired(down, down, says("Yes.", usage=(100, 10))) as (model, server):
        async with opened(file, retrying(model), ceilings=LARGE) as here:
            await here.answered()
            assert len(await here.records()) == 1
            (budget,) = await budgets_of(here.store)
            assert (budget.used, budget.reserved) == (110, 0)
        assert len(server.asked) == 3


async def test_the_wire_carries_what_was_reserved(file: Path) -> None:
    """The provider is told the most that it may write."""
    async with wired(says("Yes.")) as (model, server):
        async with opened(file, model) as here:
            await here.answered()
        assert server.asked[0].json["max_tokens"] == MOST_TOKENS


LARGE = Ceilings(daily=Ceiling(tokens=1_000_000))


def broken(text: str) -> Reply:
    """An answer whose line breaks behind this."""
    return Reply([sse({"choices": [{"delta": {"content": text}}]})], end="abort")


def retrying(model: Model) -> Model:
    """As the app makes it, without the pauses."""

    async def sleep(seconds: float) -> None:
        del seconds

    return FallbackModel([CountedModel(model, OfflineTokenCounter())], sleep=sleep)
