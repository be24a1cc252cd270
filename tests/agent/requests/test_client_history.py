"""Clients that recite go on where what they tell was said, with what the agent knows of it."""

from __future__ import annotations

from pathlib import Path

from dodona.agent.requests.client_history import ClientHistory
from dodona.core.domain.conversations.conversation import RunOptions, RunRequest
from dodona.core.domain.conversations.sessions import session_key
from dodona.core.messages import AssistantText, UserText
from dodona.models.scripted.model import ScriptedModel
from tests.agent.opening import USER, Opened, calls, opened

PAST = (("", "Welcome!"), ("Are there oaks?", "Many."), ("", ""))


def recital(*exchanges: tuple[str, str], instructions: str = "") -> ClientHistory:
    return ClientHistory(
        agent_id="oracle",
        channel="v1",
        account=USER,
        exchanges=exchanges,
        instructions=instructions,
    )


async def said(here: Opened, told: ClientHistory, question: str) -> ClientHistory:
    """Ask as such a client does; what it will tell next time."""
    peer = await here.agency.client_histories.match_or_create(USER, told)
    request = RunRequest(
        user_id=USER,
        question=question,
        options=RunOptions(instructions=told.instructions),
        agent_id="oracle",
        session_key=session_key("oracle", "v1", USER, peer),
    )
    run_id = await here.oracle.submit(request)
    answer = await here.answer(run_id)
    now = told.extended_with(question, answer.answer)
    await here.agency.client_histories.remember(USER, run_id, now)
    return now


def test_a_digest_is_that_of_all_that_counts() -> None:
    """Who, what, and under which instructions; not how an exchange came to be known."""
    one = recital(("a", "b"))
    assert recital().extended_with("a", "b").digest == one.digest
    others = [
        recital(("a", "c")),
        recital(("a", "b"), instructions="x"),
        recital(("a", "b"), ("", "")),
    ]
    assert len({one.digest, *(other.digest for other in others)}) == 4


async def test_what_was_looked_up_is_remembered(tmp_path: Path) -> None:
    """The second question finds the first one's turns, not only what was said."""
    model = ScriptedModel([calls(("echo", "oak")), "Oaks.", "Elms.", "Pines."])
    async with opened(tmp_path / "a.db", model) as here:
        told = await said(here, recital(), "Which trees?")
        told = await said(here, told, "And?")
        await said(here, told, "And more?")
        sessions = await here.store.sessions.list(USER)
    assert len(sessions) == 1
    shown = model.requests[-1].messages
    assert [each.text for each in shown if isinstance(each, UserText)][-3:] == [
        *("Which trees?", "And?", "And more?"),
    ]
    assert any(isinstance(each, AssistantText) and each.calls for each in shown)


async def test_a_past_from_elsewhere_is_read_by_the_model(tmp_path: Path) -> None:
    """What nobody said is left out of it."""
    model = ScriptedModel(["Yes."])
    async with opened(tmp_path / "a.db", model) as here:
        await said(here, recital(*PAST), "Pines too?")
    shown = [each.text for each in model.requests[0].messages[1:]]
    assert shown == ["Welcome!", "Are there oaks?", "Many.", "Pines too?"]


async def test_instructions_stay_before_all_that_was_said(tmp_path: Path) -> None:
    """So the beginning of requests stays the same, and a provider's cache holds."""
    model = ScriptedModel(["One.", "Two."])
    async with opened(tmp_path / "a.db", model) as here:
        told = await said(here, recital(instructions="Be brief."), "a")
        await said(here, told, "b")
    first, second = (request.messages for request in model.requests)
    assert first[1] == UserText("Instructions for this conversation:\n\nBe brief.")
    assert second[: len(first)] == first
    assert [each.text for each in second[len(first) :]] == ["One.", "b"]
