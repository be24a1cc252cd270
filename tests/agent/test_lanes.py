"""Lanes: one run at a time in a conversation, in the order in which they were asked."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from dodona.agent.conversation.history import CACHE_SIZE
from dodona.agent.views.projects import NewProject
from dodona.core.domain.conversations.conversation import RunStatus
from dodona.core.errors import Cancelled, NotFound
from dodona.core.messages import UserText
from dodona.core.ports.model import ModelRequest
from dodona.models.scripted.model import ScriptedModel
from tests.agent.opening import USER, Tools, bodies, calls, kinds, opened, until


def echoed(request: ModelRequest) -> str:
    """Says the question back, and how many messages it saw."""
    asked = [each.text for each in request.messages if isinstance(each, UserText)]
    return f"{asked[-1]} after {len(asked) - 1}"


async def test_questions_of_a_context_are_answered_in_order(file: Path) -> None:
    """Asked at once, answered one after another, each with the ones before it."""
    model = ScriptedModel([echoed] * 8)
    async with opened(file, model) as here:
        runs = [await here.ask(f"Q{number}") for number in range(8)]
        answers = [(await here.answer(run_id)).answer for run_id in runs]

        assert answers == [f"Q{number} after {number}" for number in range(8)]


async def test_questions_of_two_processes_are_answered_in_order(file: Path) -> None:
    """The lane is in the store: two processes share it, and neither runs beside the other."""
    tools = Tools()
    held = ScriptedModel([calls(("echo", "wait")), "First."])
    other = ScriptedModel([echoed])
    async with opened(file, held, tools=tools) as here, opened(file, other, tools=tools) as there:
        first = await here.ask("Q1")
        await until(lambda: tools.at_once, "a tool at work")
        second = await there.ask("Q2")
        following = asyncio.create_task(there.chunks(second))
        await asyncio.sleep(1)  # both look at their lanes several times
        assert (await there.run(second)).status is RunStatus.QUEUED
        tools.gate.set()

        assert (await here.answer(first)).answer == "First."
        assert bodies(await following, "done")
        assert (await there.answer(second)).answer == "Q2 after 1"


async def test_contexts_do_not_wait_for_each_other(file: Path) -> None:
    """Another user, and another project, have lanes of their own."""
    model = ScriptedModel([calls(("echo", "wait")), "Quick.", "Quick.", "Slow."])
    async with opened(file, model) as here:
        await here.agency.projects.create(USER, NewProject(id="other"))
        slow = await here.ask("Q")
        await until(lambda: here.tools.at_once, "a tool at work")
        assert (await here.answered("Q", user="bob")).answer == "Quick."
        assert (await here.answered("Q", project_id="other")).answer == "Quick."
        here.tools.gate.set()
        assert (await here.answer(slow)).answer == "Slow."


async def test_a_queued_question_can_be_cancelled(file: Path) -> None:
    """It has ended when the cancel returns; the one that runs goes on, and so does the next."""
    model = ScriptedModel([calls(("echo", "wait")), "First.", echoed])
    async with opened(file, model) as here:
        first, second, third = [await here.ask(f"Q{number}") for number in (1, 2, 3)]
        await until(lambda: here.tools.at_once, "a tool at work")
        assert await here.oracle.cancel(USER, second) is RunStatus.CANCELLED
        chunks = await here.chunks(second)
        here.tools.gate.set()

        assert kinds(chunks) == ["error"]
        assert chunks[0].as_json()["error"]["code"] == "cancelled"
        with pytest.raises(Cancelled):
            await here.answer(second)
        assert (await here.answer(first)).answer == "First."
        assert (await here.answer(third)).answer.startswith("Q3")


async def test_all_of_a_context_can_be_cancelled(file: Path) -> None:
    """The one that runs and those that wait; none of them begins meanwhile."""
    model = ScriptedModel([calls(("echo", "wait")), "Never said."])
    async with opened(file, model) as here:
        runs = [await here.ask(f"Q{number}") for number in range(3)]
        await until(lambda: here.tools.at_once, "a tool at work")
        assert sorted(await here.oracle.cancel_all(USER, "default")) == runs

        for run_id in runs:
            assert (await here.ended(run_id)).status is RunStatus.CANCELLED
        assert len(model.requests) == 1


async def test_another_users_run_is_not_found(file: Path) -> None:
    """Neither its chunks nor its answer nor its cancel."""
    async with opened(file, ScriptedModel([calls(("echo", "wait"))])) as here:
        run_id = await here.ask()
        await until(lambda: here.tools.at_once, "a tool at work")
        with pytest.raises(NotFound):
            await here.chunks(run_id, user="bob")
        with pytest.raises(NotFound):
            await here.answer(run_id, user="bob")
        with pytest.raises(NotFound):
            await here.oracle.cancel("bob", run_id)
        with pytest.raises(NotFound):
            await here.chunks(run_id + 1)
        assert await here.oracle.cancel_all("bob", "default") == []
        assert here.tools.at_once == 1


async def test_many_contexts_at_once(file: Path) -> None:
    """More conversations than are remembered go on at once; none loses its thread."""
    count = CACHE_SIZE + 16
    model = ScriptedModel([echoed] * (3 * count))
    async with opened(file, model) as here:
        users = [f"user-{number}" for number in range(count)]
        for turn in range(3):
            answers = await asyncio.gather(*(here.answered(f"Q{turn}", user=u) for u in users))
            assert {answer.answer for answer in answers} == {f"Q{turn} after {turn}"}


async def test_a_question_is_answered_though_nobody_listens(file: Path) -> None:
    """An accepted run does not depend on whoever asked it."""
    async with opened(file, ScriptedModel(["The oak."])) as here:
        run_id = await here.ask()
        following = here.oracle.stream_chunks(USER, run_id)
        await following.aclose()

        assert (await here.ended(run_id)).status is RunStatus.SUCCEEDED
