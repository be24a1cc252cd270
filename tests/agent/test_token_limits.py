"""A token may have a budget, agents and models of its own: its runs never go beyond them."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dodona.agent.requests.passthrough import PassthroughRequest
from dodona.core.domain.agents import AgentDef, Agents
from dodona.core.domain.api_tokens import ApiToken, BudgetPeriod, TokenLimits
from dodona.core.domain.budgets import NANOS_PER_USD, BillingScope
from dodona.core.domain.conversations.conversation import RunRequest, RunStatus
from dodona.core.errors import AccessDenied, BudgetExceeded
from dodona.core.messages import UserText
from dodona.core.ports.model import ModelRequest
from dodona.models.scripted.model import ScriptedModel
from tests.agent.opening import USER, Opened, Shelf, calls, opened, until
from tests.agent.test_librarian import delegates
from tests.agent.wire import says, wired
from tests.stored import budgets_of

GARDENER = AgentDef(id="gardener")
AGENTS = Agents(others={"gardener": GARDENER})


async def token_of(here: Opened, user: str = USER, **limits: Any) -> ApiToken:
    token, _ = await here.store.api_tokens.create(
        user, {"chat"}, by="local", limits=TokenLimits(**limits)
    )
    return token


async def test_a_token_spends_its_own_budget_and_no_more(file: Path) -> None:
    """The same user without the token, or with another one, goes on."""
    model = ScriptedModel(["Yes.", "Yes too.", "Yes again."])
    async with opened(file, model) as here:
        token = await token_of(here, budget_tokens=2050)
        other = await token_of(here, budget_tokens=100_000)
        await here.answer(await here.ask(token=token))
        with pytest.raises(BudgetExceeded, match=rf"the budget of token:{token.id} ") as raised:
            await here.answer(await here.ask("And?", token=token))
        assert raised.value.hint is not None
        assert "create another one" in raised.value.hint
        await here.answer(await here.ask(token=other))
        await here.answer(await here.ask())
        shown = await here.agency.spending.budgets(USER, max_rows=10, token=token)
        everything = await here.agency.spending.budgets(None, max_rows=10)
    assert [(each.kind, each.scope, each.ceiling) for each in shown] == [
        ("token", f"token:{token.id}", 2050)
    ]
    assert 0 < shown[0].used < 2050
    assert shown[0].held == 0
    assert [each.scope for each in everything] == [f"token:{token.id}", f"token:{other.id}"]
    assert len(model.requests) == 3


async def test_runs_at_once_stay_under_a_tokens_budget_together(file: Path) -> None:
    """However many contexts ask at the same time, in two processes."""
    count = 10
    model = ScriptedModel(["Yes."] * count)
    async with opened(file, model) as here, opened(file, model) as there:
        token = await token_of(here, budget_tokens=5000, period=BudgetPeriod.MONTH)
        places = [(here, there)[number % 2] for number in range(count)]
        requests = [
            RunRequest(user_id=USER, question="?", session_key=f"oracle:a:b:{number}", token=token)
            for number in range(count)
        ]
        runs = await asyncio.gather(
            *(each.oracle.submit(request) for each, request in zip(places, requests, strict=True))
        )
        ended = [await here.ended(run_id) for run_id in runs]
        (budget,) = await budgets_of(here.store)
    assert (budget.scope, len(budget.period)) == (f"token:{token.id}", len("2026-11"))
    assert (budget.used <= 5000, budget.reserved) == (True, 0)
    assert len(model.requests) == sum(run.status is RunStatus.SUCCEEDED for run in ended) < count


async def test_a_resumed_run_still_bills_its_token(file: Path) -> None:
    """The token is stored with the run. What a crash has cut is billed to it in full."""
    answers = [calls(("echo", "wait")), "Yes."]
    async with opened(file, ScriptedModel(answers)) as here:
        token = await token_of(here, budget_tokens=100_000)
        run_id = await here.ask(token=token)
        await until(lambda: here.tools.of("echo"), "the call of the tool")
        (before,) = await budgets_of(here.store)
        assert before.used + before.reserved > 0
    after = ScriptedModel(["Yes."])
    async with opened(file, after) as here:
        here.tools.gate.set()
        await here.ended(run_id)
        (budget,) = await budgets_of(here.store)
        records = await here.records()
    assert (len(after.requests), len(records)) == (1, 2)
    assert (budget.scope, budget.reserved) == (f"token:{token.id}", 0)
    assert budget.used == sum(each.input_tokens + each.output_tokens for each in records)


async def test_a_dollar_budget_of_a_token_needs_a_price(file: Path) -> None:
    """Also without any other budget in dollars; requests without the token are not affected."""
    async with wired(says("Yes.")) as (model, server), opened(file, model) as here:
        token = await token_of(here, budget_nanos=NANOS_PER_USD)
        with pytest.raises(BudgetExceeded, match="its price is unknown"):
            await here.answer(await here.ask(token=token))
        assert not server.asked
        await here.answer(await here.ask())
        assert len(server.asked) == 1


async def test_a_token_may_use_its_agents_only(file: Path) -> None:
    """In contexts, sessions and direct calls. Nothing is stored of what is refused."""
    model = ScriptedModel(["Yes."])
    key = "oracle:chat:acme:eve"
    async with opened(file, model, agents=AGENTS) as here:
        token = await token_of(here, agents=frozenset({"gardener"}))
        request = RunRequest(user_id=USER, question="Why?", token=token)
        for refused in (request, replace(request, session_key=key)):
            with pytest.raises(AccessDenied, match="may not use the agent 'oracle'") as raised:
                await here.oracle.submit(refused)
            assert raised.value.hint == "Its agents: gardener."
        assert await here.agency.sessions.list(USER) == []
        scope = BillingScope(user_id=USER, agent_id="oracle", session_key=None, token=token)
        direct = PassthroughRequest(
            agent=AGENTS.default, scope=scope, request=ModelRequest((UserText("Why?"),))
        )
        with pytest.raises(AccessDenied):
            await anext(here.agency.passthrough.stream(direct))
        assert not model.requests
        run_id = await here.oracle.submit(
            replace(request, session_key="gardener:chat:acme:eve", agent_id="gardener")
        )
        assert (await here.ended(run_id)).status is RunStatus.SUCCEEDED


async def test_a_token_sees_and_clears_the_sessions_of_its_agents(file: Path) -> None:
    async with opened(file, ScriptedModel(["Yes."] * 3), agents=AGENTS) as here:
        keys = [f"{agent}:chat:acme:{peer}" for agent, peer in (("oracle", 1), ("gardener", 2))]
        for key in keys:
            agent_id = key.partition(":")[0]
            request = RunRequest(user_id=USER, question="?", session_key=key, agent_id=agent_id)
            await here.answer(await here.oracle.submit(request))
        token = await token_of(here, agents=frozenset({"gardener"}))
        sessions = here.agency.sessions
        assert [each.key for each in await sessions.list(USER, token=token)] == keys[1:]
        assert await sessions.list(USER, skip=1, token=token) == []
        assert len((await sessions.history(USER, keys[1], token=token)).messages) == 2
        for refused in (sessions.history, sessions.clear):
            with pytest.raises(AccessDenied):
                await refused(USER, keys[0], token=token)


async def test_a_model_outside_the_list_is_never_called(file: Path) -> None:
    """Not by the request, by the user's settings, or as the configured one."""
    oak, elm = ScriptedModel(["Yes."] * 9, name="oak"), ScriptedModel(["Yes."] * 9, name="elm")
    async with opened(file, shelf=Shelf([oak, elm])) as here:
        token = await token_of(here, models=frozenset({"scripted/elm"}))
        with pytest.raises(AccessDenied, match="may not use the model 'scripted/oak'") as raised:
            await here.answer(await here.ask(token=token))
        assert raised.value.hint == "Its models: scripted/elm."
        with pytest.raises(AccessDenied):
            await here.answer(await here.ask(token=token, model="oak"))
        await here.answer(await here.ask(token=token, model="elm"))
        assert (len(oak.requests), len(elm.requests)) == (0, 1)
        await here.set(oracle_model="oak")
        with pytest.raises(AccessDenied):
            await here.answer(await here.ask(token=token))
        assert (len(oak.requests), len(elm.requests)) == (0, 1)


async def test_a_subagent_has_the_limits_of_the_token(file: Path) -> None:
    """A model that is not allowed does not do its task; an allowed one is billed to the token."""
    oak = ScriptedModel([delegates(), "I see."] * 2, name="oak")
    elm = ScriptedModel(["An elm."], name="elm")
    async with opened(file, shelf=Shelf([oak, elm])) as here:
        await here.set(subagent_model="elm")
        strict = await token_of(here, models=frozenset({"oak"}))
        answer = await here.answer(await here.ask(token=strict))
        assert [call.status for call in answer.tool_calls] == ["error"]
        assert "may not use the model 'scripted/elm'" in oak.requests[1].messages[-1].text
        assert not elm.requests
        paying = await token_of(here, budget_tokens=1_000_000)
        run_id = await here.ask(token=paying, new=True)
        await here.answer(run_id)
        (budget,) = await budgets_of(here.store)
        used = [
            r.input_tokens + r.output_tokens for r in await here.records() if r.run_id == run_id
        ]
    assert (len(elm.requests), len(used)) == (1, 3)
    assert (budget.scope, budget.used) == (f"token:{paying.id}", sum(used))


async def test_background_work_is_billed_to_the_token(file: Path) -> None:
    """The summary of older exchanges is written by an allowed model, and the token pays for it."""
    oak = ScriptedModel(["Yes. " * 700] * 9, name="oak")
    async with opened(file, oak, token_budget=4000) as here:
        token = await token_of(here, budget_tokens=1_000_000)
        for _ in range(4):
            await here.answer(await here.ask("Why? " * 200, token=token))
        await until(lambda: here.told("context.compressed"), "the compression")

        async def is_billed() -> bool:
            """Whether all work so far is billed. Another summary may be in progress."""
            (budget,) = await budgets_of(here.store)
            records = await here.records()
            total = sum(each.input_tokens + each.output_tokens for each in records)
            return not budget.reserved and budget.used == total

        await until(is_billed, "the bill")
        assert any(each.run_id is None for each in await here.records())
