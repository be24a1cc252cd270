"""Spending: nothing is called beyond a ceiling, and every call has its record."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from pathlib import Path

import pytest

from dodona.core.conversation import RunStatus
from dodona.core.errors import BudgetExceeded, Fault, ProviderError
from dodona.metering import Ceiling, Ceilings
from dodona.models.scripted import ScriptedModel
from dodona.models.scripted_answers import Broken
from tests.agent.opening import USER, bodies, calls, opened
from tests.agent.wire import says, wired
from tests.models.wire_server import Reply


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

        assert (failed.error or {})["code"] == "budget_exceeded"
        (budget,) = await here.store.budgets.all()
        records = await here.records()
        assert budget.held == 0
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
        (budget,) = await here.store.budgets.all()
        assert (budget.used, budget.held) == (0, 0)


async def test_an_answer_that_broke_is_paid(file: Path) -> None:
    """What was streamed before the error was billed; it is kept as a part of an answer."""
    error = ProviderError("the line broke.", fault=Fault.CUT, provider="scripted")
    model = ScriptedModel([Broken("Half an answer", error)])
    async with opened(file, model) as here:
        run_id = await here.ask()
        chunks = await here.chunks(run_id)

        assert chunks[-1].body["error"]["code"] == "provider_failed"
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
        (budget,) = await here.store.budgets.all()

        assert budget.used <= 5000
        assert budget.held == 0
        failed = [
            run_id
            for run_id, user in zip(runs, users, strict=True)
            if (await here.run(run_id, user=user)).status is RunStatus.FAILED
        ]
        assert len(failed) + len(model.requests) == count
