"""A client with tools of its own talks to an agent's model, and pays like a run."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from pathlib import Path

import pytest
from sqlalchemy import select

from dodona.agent.requests.passthrough import PassthroughRequest
from dodona.core.domain.agents import AgentDef
from dodona.core.domain.budgets import BillingScope
from dodona.core.errors import BudgetExceeded, ProviderError, ProviderErrorKind
from dodona.core.messages import AssistantText, SystemText, ToolCall, ToolSpec, UserText
from dodona.core.ports.model import CallDelta, Done, ModelEvent, ModelRequest, TextDelta
from dodona.metering import Ceiling, Ceilings
from dodona.models.scripted.answers import BrokenAnswer, ScriptedAnswer
from dodona.models.scripted.model import ScriptedModel
from dodona.store.db.statements import statement
from dodona.store.schema import IS_RESERVED, reservations
from tests.agent.opening import MOST_TOKENS, USER, Opened, opened

FIND = ToolSpec("find", "Finds.", {"type": "object"})
ASKED = ModelRequest((UserText("Which trees?"),), (FIND,))
GARDENER = AgentDef(id="gardener", soul="Roots first.\n", system_prompt="You are a gardener.")
KEY = "gardener:v1:ada:main"
_HELD = statement(select(reservations.c.id).where(IS_RESERVED))


def relayed(request: ModelRequest = ASKED, model: str = "") -> PassthroughRequest:
    scope = BillingScope(user_id=USER, agent_id=GARDENER.id, session_key=KEY)
    return PassthroughRequest(agent=GARDENER, scope=scope, request=request, model=model)


def streaming(here: Opened, wanted: PassthroughRequest | None = None) -> AsyncGenerator[ModelEvent]:
    return here.agency.passthrough.stream(wanted or relayed())


def scripted(*answers: ScriptedAnswer) -> ScriptedModel:
    return ScriptedModel(answers)


async def test_the_agent_speaks_first(tmp_path: Path) -> None:
    """Its soul, its prompt, then the client; no more is said than its model may say."""
    model = scripted("Oaks.")
    wanted = relayed(ModelRequest((SystemText("Be brief."), UserText("Why?")), max_tokens=10**6))
    async with opened(tmp_path / "a.db", model) as here:
        events = [event async for event in streaming(here, wanted)]
        (record,) = await here.records()
    assert isinstance(events[-1], Done)
    assert [event.text for event in events[:-1] if isinstance(event, TextDelta)] == ["Oaks."]
    (request,) = model.requests
    assert request.messages == (
        SystemText("Roots first.\n\nYou are a gardener."),
        SystemText("Be brief."),
        UserText("Why?"),
    )
    assert request.max_tokens == MOST_TOKENS
    assert here.models.agents == ["gardener"]
    assert (record.agent_id, record.session_key, record.run_id) == ("gardener", KEY, None)


async def test_calls_come_as_they_are_made(tmp_path: Path) -> None:
    """Piece by piece with their ids, and whole at the end."""
    made = AssistantText(calls=(ToolCall("a", "find", '{"kind": "oak"}'),))
    async with opened(tmp_path / "a.db", scripted(made)) as here:
        *pieces, done = [event async for event in streaming(here)]
    assert pieces == [
        CallDelta(0, "find", '{"kind": ', "a"),
        CallDelta(0, "find", '"oak"}', "a"),
    ]
    assert isinstance(done, Done)
    assert done.message is made


async def test_who_leaves_pays_for_what_was_said(tmp_path: Path) -> None:
    """Nothing stays put aside."""
    async with opened(tmp_path / "a.db", scripted("one two three four five six")) as here:
        async with aclosing(streaming(here)) as events:
            await anext(events)
        (record,) = await here.records()
        assert await _held(here) == []
    assert 0 < record.output_tokens <= 6


async def test_who_does_not_listen_asks_nobody(tmp_path: Path) -> None:
    """A stream that was never begun has cost nothing."""
    model = scripted("Oaks.")
    async with opened(tmp_path / "a.db", model) as here:
        await streaming(here).aclose()
        assert await here.records() == []
    assert model.requests == []


@pytest.mark.parametrize(
    "answer",
    [
        ProviderError("no.", kind=ProviderErrorKind.REJECTED, provider="p"),
        BrokenAnswer(
            "some of", ProviderError("cut.", kind=ProviderErrorKind.INTERRUPTED, provider="p")
        ),
    ],
    ids=["at once", "in the middle"],
)
async def test_a_failure_is_settled_and_raised(tmp_path: Path, answer: ScriptedAnswer) -> None:
    async with opened(tmp_path / "a.db", scripted(answer)) as here:
        with pytest.raises(ProviderError):
            _ = [event async for event in streaming(here)]
        assert await _held(here) == []


async def test_budgets_hold(tmp_path: Path) -> None:
    """Of the session, the agent and the day alike: no request is made."""
    nothing = Ceiling(tokens=0)
    for number, ceilings in enumerate(
        (Ceilings(session=nothing), Ceilings(agent=nothing), Ceilings(daily=nothing))
    ):
        model = scripted("Oaks.")
        async with opened(tmp_path / f"{number}.db", model, ceilings=ceilings) as here:
            with pytest.raises(BudgetExceeded):
                _ = [event async for event in streaming(here)]
            assert await here.records() == []
        assert model.requests == []


async def test_another_model_may_be_named(tmp_path: Path) -> None:
    first, second = scripted("No."), ScriptedModel(["Yes."], name="other")
    async with opened(tmp_path / "a.db", first, second) as here:
        _ = [event async for event in streaming(here, relayed(model="other"))]
    assert (len(first.requests), len(second.requests)) == (0, 1)


async def _held(here: Opened) -> Sequence[object]:
    """What is put aside for calls that are under way."""
    return await here.store.database.read(lambda tx: tx.fetch_all(_HELD))
