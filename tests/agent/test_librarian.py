"""The Librarian: a second model with a task of its own, whose words are a result."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from dodona.agent.delegating import DELEGATE
from dodona.core.messages import AssistantText, ToolCall, ToolResult
from dodona.models.scripted import ScriptedModel
from tests.agent.opening import USER, Tools, bodies, calls, opened, text_of, until
from tests.agent.wire import hangs, says, wired


def delegates(task: str = "Sum it up.", *, id_: str = "call-1") -> AssistantText:
    return AssistantText(calls=(ToolCall(id_, DELEGATE, json.dumps({"task": task})),))


async def test_the_librarian_does_a_task(file: Path) -> None:
    """It sees the task and nothing else; what it says goes back as the result of the call."""
    oracle = ScriptedModel([delegates("Sum up: oak."), "It is an oak."], name="oracle")
    librarian = ScriptedModel(["An oak."], name="librarian")
    async with opened(file, oracle, librarian) as here:
        await here.set(subagent_model="librarian")
        run_id = await here.ask("What is it?")
        chunks = await here.chunks(run_id)

        (request,) = librarian.requests
        assert [message.text for message in request.messages[1:]] == ["Sum up: oak."]
        assert "Librarian" in request.messages[0].text
        assert not request.tools
        result = oracle.requests[1].messages[-1]
        assert isinstance(result, ToolResult)
        assert (result.text, result.failed) == ("An oak.", False)
        assert text_of(chunks) == "It is an oak."
        assert [body["name"] for body in bodies(chunks, "tool_result")] == [DELEGATE]


async def test_without_a_model_of_its_own_it_is_the_oracles(file: Path) -> None:
    """subagent_model is empty: the run's own model does the task."""
    model = ScriptedModel([delegates(), "An oak.", "It is an oak."])
    async with opened(file, model) as here:
        assert (await here.answered()).answer == "It is an oak."
        assert len(model.requests) == 3


async def test_the_librarians_calls_are_recorded_and_counted(file: Path) -> None:
    """Its tokens are the run's too: in the records and in what the run says that it used."""
    model = ScriptedModel([delegates(), "An oak.", "It is an oak."])
    async with opened(file, model) as here:
        answer = await here.answered()
        records = await here.records()

        assert len(records) == 3
        assert answer.tokens_used == sum(r.input_tokens + r.output_tokens for r in records)


async def test_what_the_librarian_used_survives_a_crash(file: Path) -> None:
    """The step is applied, not repeated, and what it used still counts."""
    tools = Tools()
    first = ScriptedModel([delegates(), "An oak.", calls(("once", "wait"))])
    async with opened(file, first, tools=tools) as here:
        run_id = await here.ask()
        await until(lambda: tools.at_once, "a tool at work")
        await here.agency.engine.leave(0)
    then = ScriptedModel(["It is an oak."])
    async with opened(file, then, tools=tools) as here:
        answer = await here.answer(run_id)
        records = await here.records()

        assert len(then.requests) == 1
        assert len(records) == 4
        assert answer.tokens_used == sum(r.input_tokens + r.output_tokens for r in records)


async def test_the_librarians_tokens_count_towards_the_budget(file: Path) -> None:
    """A run cannot pass its token budget by handing its work on."""
    model = ScriptedModel([delegates(), "word " * 2000, delegates(id_="call-2"), "Never said."])
    async with opened(file, model) as here:
        await here.set(token_budget=2000)
        chunks = await here.chunks(await here.ask())

        assert bodies(chunks, "system")[-1]["metadata"]["limit"] == "tokens"
        assert len(model.requests) == 2


async def test_a_task_without_words_is_refused(file: Path) -> None:
    """The model is told what to write; no second model is called."""
    bad = AssistantText(calls=(ToolCall("call-1", DELEGATE, '{"job": 1}'),))
    worse = AssistantText(calls=(ToolCall("call-2", DELEGATE, "[1"),))
    model = ScriptedModel([bad, worse, "I see."])
    async with opened(file, model) as here:
        answer = await here.answered()

        assert answer.answer == "I see."
        assert [call["status"] for call in answer.tool_calls] == ["error", "error"]
        assert "task" in model.requests[1].messages[-1].text


async def test_a_librarian_that_fails_is_a_result(file: Path) -> None:
    """The run goes on without it."""
    oracle = ScriptedModel([delegates(), "Without it, then."])
    async with opened(file, oracle) as here:
        await here.set(subagent_model="nobody")
        answer = await here.answered()

        assert answer.answer == "Without it, then."
        assert [call["status"] for call in answer.tool_calls] == ["error"]


async def test_the_librarian_has_its_own_time(file: Path) -> None:
    """librarian_timeout ends its work; meanwhile the time of the run stands still."""
    oracle = ScriptedModel([delegates(), "Without it, then."], name="oracle")
    async with (
        wired(hangs("Let me")) as (librarian, server),
        opened(file, oracle, librarian) as here,
    ):
        await here.set(subagent_model=librarian.name, librarian_timeout=11, timeout_seconds=10)
        run_id = await here.ask()
        chunks = await here.chunks(run_id)

        assert text_of(chunks) == "Without it, then."
        (result,) = bodies(chunks, "tool_result")
        assert result["status"] == "error"
        assert "11 seconds" in result["result"]
        assert not bodies(chunks, "system")
        async with asyncio.timeout(20):
            await server.left.wait()


async def test_cancelling_stops_the_librarian(file: Path) -> None:
    """Its request is closed, and what it may have used is recorded."""
    oracle = ScriptedModel([delegates(), "Never said."], name="oracle")
    async with (
        wired(hangs("Let me")) as (librarian, server),
        opened(file, oracle, librarian) as here,
    ):
        await here.set(subagent_model=librarian.name)
        run_id = await here.ask()
        await until(server.reached.is_set, "the Librarian's request")
        await here.oracle.cancel(USER, run_id)
        await here.ended(run_id)
        async with asyncio.timeout(20):
            await server.left.wait()

        assert [r.estimated for r in await here.records()] == [False, True]


async def test_librarians_work_beside_tools(file: Path) -> None:
    """Two tasks and a tool in one turn; results in the order of the calls."""
    both = AssistantText(
        calls=(
            *delegates("One.", id_="a").calls,
            *calls(("echo", "2")).calls,
            *delegates("Three.", id_="c").calls,
        )
    )
    oracle = ScriptedModel([both, "Done."], name="oracle")
    async with wired(says("An oak.")) as (librarian, server):
        async with opened(file, oracle, librarian) as here:
            await here.set(subagent_model=librarian.name)
            await here.answered()

        results = oracle.requests[1].messages[-3:]
        assert [each.text for each in results] == ["An oak.", "echo says 2", "An oak."]
        assert len(server.asked) == 2
