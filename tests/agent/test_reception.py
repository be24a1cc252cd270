"""Messages of channels: answered by their agents, in their sessions, in order."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from dodona.core.domain.agents import AgentDef, Agents, QueueMode
from dodona.core.domain.conversations.conversation import RunRequest, RunStatus
from dodona.core.domain.conversations.sessions import session_key
from dodona.core.errors import BadRequest, LaneFull, NotFound
from dodona.core.messages import SystemText, UserText
from dodona.core.ports.model import ModelRequest
from dodona.models.scripted.model import ScriptedModel
from tests.agent.opening import USER, Opened, Tools, bodies, calls, opened, plain_prompts

AGENTS = Agents(
    AgentDef(id="oracle"),
    {
        "work": AgentDef(
            id="work",
            soul="You are an oak.\n",
            system_prompt="Answer {{ like }} a tree.",
            tools=frozenset({"echo"}),
        ),
        "mild": AgentDef(id="mild", soul="You are mild."),
        "eager": AgentDef(id="eager", queueing=QueueMode.INTERRUPT),
        "patient": AgentDef(id="patient", queueing=QueueMode.COLLECT, queue_limit=2),
    },
)


async def send(
    here: Opened, text: str = "Why?", agent: str = "work", *, peer: str = "bob", **more: Any
) -> int:
    key = session_key(agent, "chat", "acme", peer)
    return await here.oracle.submit(
        RunRequest(user_id=USER, question=text, agent_id=agent, session_key=key, **more)
    )


async def said(here: Opened, text: str = "Why?", agent: str = "work", **more: Any) -> str:
    return (await here.answer(await send(here, text, agent, **more))).answer


def questions(request: ModelRequest) -> list[str]:
    return [each.text for each in request.messages if isinstance(each, UserText)]


def system(request: ModelRequest) -> str:
    first = request.messages[0]
    assert isinstance(first, SystemText)
    return first.text


async def test_an_agent_has_its_soul_prompt_tools_and_model(file: Path) -> None:
    """The soul first, then its prompt, word for word; no tool that it was not given."""
    model = ScriptedModel([calls(("echo", "1"), ("once", "2")), "Leaves.", "Yes."])
    async with opened(file, model, agents=AGENTS) as here:
        assert await said(here) == "Leaves."
        assert system(model.requests[0]) == "You are an oak.\n\nAnswer {{ like }} a tree."
        assert [tool.name for tool in model.requests[0].tools] == ["echo"]
        assert [made.name for made in here.tools.made] == ["echo"]
        assert set(here.models.agents) == {"work"}
        (record, *_) = await here.records()
        assert (record.agent_id, record.session_key) == ("work", "work:chat:acme:bob")
        await said(here, agent="oracle")
        assert len(model.requests[-1].tools) > 5
        assert (await here.records())[-1].agent_id == "oracle"


async def test_a_soul_stands_before_the_shipped_prompt(file: Path, tmp_path: Path) -> None:
    model = ScriptedModel(["Yes."])
    prompts = plain_prompts(tmp_path / "prompts", "Be brief in {{ project_id }}.")
    async with opened(file, model, agents=AGENTS, prompts=prompts) as here:
        await said(here, agent="mild")
        assert system(model.requests[0]) == "You are mild.\n\nBe brief in default."


async def test_sessions_do_not_know_each_other(file: Path) -> None:
    """Not another peer's, another agent's, nor the context; its own goes on."""
    model = ScriptedModel(["1", "2", "3", "4", "5"])
    async with opened(file, model, agents=AGENTS) as here:
        await said(here, "One?")
        await said(here, "Two?", peer="eve")
        await said(here, "Three?", agent="oracle")
        await here.answered("Four?")
        await said(here, "Five?")
        seen = [questions(request) for request in model.requests]
        assert seen == [["One?"], ["Two?"], ["Three?"], ["Four?"], ["One?", "Five?"]]
        found = {each.key: each for each in await here.agency.sessions.list(USER)}
        assert set(found) == {"work:chat:acme:bob", "work:chat:acme:eve", "oracle:chat:acme:bob"}
        mine = found["work:chat:acme:bob"]
        assert (mine.agent_id, mine.message_count) == ("work", 4)
        assert mine.token_usage.input_tokens > mine.token_usage.output_tokens > 0


async def test_a_session_can_be_read_and_cleared(file: Path) -> None:
    """By its owner alone. What was said before is kept, and not known any more."""
    model = ScriptedModel(["1", "2"])
    async with opened(file, model, agents=AGENTS) as here:
        sessions = here.agency.sessions
        await send(here, "One?")
        key = "work:chat:acme:bob"
        await here.answer(1)
        told = await sessions.history(USER, key)
        assert [each.content for each in told.messages] == ["One?", "1"]
        for attempt in (sessions.history("eve", key), sessions.clear("eve", key)):
            with pytest.raises(NotFound):
                await attempt
        await sessions.clear(USER, key)
        assert (await sessions.history(USER, key)).messages == []
        await said(here, "Two?")
        assert questions(model.requests[-1]) == ["Two?"]


async def test_what_was_sent_is_answered_after_a_crash(file: Path) -> None:
    """By the agent that it was sent to, with the soul it began with."""
    tools = Tools()
    model = ScriptedModel([calls(("echo", "wait")), "Later."])
    async with opened(file, model, tools=tools, agents=AGENTS) as here:
        first = await send(here, "One?")
        await here.seen(first, "tool_call")
        second = await send(here, "Two?")
    changed = Agents(AGENTS.default, {"work": AgentDef(id="work", soul="You are a stone.")})
    model = ScriptedModel(["So.", "And so."])
    tools.gate.set()
    async with opened(file, model, tools=tools, agents=changed) as here:
        assert (await here.answer(first)).answer == "So."
        assert (await here.answer(second)).answer == "And so."
        assert system(model.requests[0]).startswith("You are an oak.")
        assert system(model.requests[1]).startswith("You are a stone.")
        assert questions(model.requests[1]) == ["One?", "Two?"]


async def test_an_agent_that_is_gone_cannot_answer(file: Path) -> None:
    """What waited for it is told so; what is sent to it is refused, with the near name."""
    model = ScriptedModel([calls(("echo", "wait")), "So."])
    async with opened(file, model, agents=AGENTS) as here:
        await here.seen(await send(here), "tool_call")
        waiting = await send(here, "Two?")
        here.tools.gate.set()
    # The first run may have been interrupted in its call, which is then repeated.
    model = ScriptedModel(["So."])
    async with opened(file, model, tools=here.tools, agents=Agents()) as here:
        (error,) = bodies(await here.chunks(waiting), "error")
        assert "agent 'work' no longer exists" in error["error"]["message"]
        with pytest.raises(NotFound, match="there is no agent 'oracel'") as caught:
            await send(here, agent="oracel")
        assert caught.value.hint == "Did you mean 'oracle'?"


async def test_an_eager_agent_is_interrupted(file: Path) -> None:
    """What runs ends as cancelled, with what it said; the newest is answered."""
    model = ScriptedModel([calls(("echo", "wait"), text="Let me see."), "Two it is."])
    async with opened(file, model, agents=AGENTS) as here:
        first = await send(here, "One?", "eager")
        await here.seen(first, "tool_call")
        second = await send(here, "Two?", "eager")
        assert (await here.answer(second)).answer == "Two it is."
        assert (await here.run(first)).status is RunStatus.CANCELLED
        assert questions(model.requests[-1])[-1] == "Two?"


async def test_a_patient_agent_collects(file: Path) -> None:
    """What came meanwhile is one question; when too much waits, that is said."""
    model = ScriptedModel([calls(("echo", "wait")), "One.", "Two and three."])
    async with opened(file, model, agents=AGENTS) as here:
        first = await send(here, "One?", "patient")
        await here.seen(first, "tool_call")
        second, third = [await send(here, text, "patient") for text in ("Two?", "Three?")]
        assert second == third
        with pytest.raises(LaneFull):
            await send(here, "Four?", "patient")
        here.tools.gate.set()
        assert (await here.answer(third)).answer == "Two and three."
        assert questions(model.requests[-1])[-1] == "Two?\n\nThree?"


async def test_a_peers_words_are_from_outside(file: Path) -> None:
    """So what cannot be taken back waits for a person, as after a page from the web."""
    model = ScriptedModel([calls(("once", "1")), "Done.", calls(("once", "2")), "Done."])
    async with opened(file, model, agents=AGENTS, approval_timeout=0.05) as here:
        own = await send(here, agent="oracle")
        await here.answer(own)
        assert len(here.tools.of("once")) == 1
        strange = await send(here, agent="oracle", peer="eve", origin="peer")
        await here.answer(strange)
        assert len(here.tools.of("once")) == 1
        assert bodies(await here.chunks(strange), "approval")


async def test_sessions_are_answered_side_by_side(file: Path) -> None:
    """Each in order, one at a time; one that waits holds up no other."""
    async with opened(
        file, ScriptedModel([calls(("echo", "wait")), "A.", "B."]), agents=AGENTS
    ) as h:
        first = await send(h, peer="a")
        await h.seen(first, "tool_call")
        assert await said(h, peer="b") == "A."
        h.tools.gate.set()
        assert (await h.answer(first)).answer == "B."


@pytest.mark.parametrize("content", ["", "  ", "x" * 10_001])
async def test_a_message_has_a_size(file: Path, content: str) -> None:
    async with opened(file, ScriptedModel([]), agents=AGENTS) as here:
        with pytest.raises(BadRequest, match="a message must have 1 to 10,000 characters"):
            await send(here, content)


async def test_many_at_once_are_answered_in_order(file: Path) -> None:
    """Ten sessions, ten messages each, sent at once: every session sees its own in order."""
    model = ScriptedModel(["."] * 100)
    async with opened(file, model, agents=AGENTS) as here:

        async def talk(peer: int) -> list[int]:
            sent = [await send(here, f"{n}?", peer=str(peer)) for n in range(10)]
            for each in sent:
                await here.answer(each)
            return sent

        runs = await asyncio.gather(*(talk(peer) for peer in range(10)))
        assert all(each == sorted(each) for each in runs)
        for peer in range(10):
            told = await here.agency.sessions.history(USER, f"work:chat:acme:{peer}")
            asked = [each.content for each in told.messages if each.role == "user"]
            assert asked == [f"{n}?" for n in range(10)]
