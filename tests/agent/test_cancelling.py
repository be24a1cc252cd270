"""Cancelling: the request is closed, the tree stops, what there is is kept and paid."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from dodona.agent.conversation.exchange import ExchangeRecord
from dodona.agent.leaves.answer import CUT_ANSWER_TEXT
from dodona.core.domain.conversations.conversation import RunStatus
from dodona.core.errors import Cancelled
from dodona.core.events import SESSION_END
from dodona.models.scripted.model import ScriptedModel
from tests.agent.opening import (
    LIMIT,
    USER,
    Opened,
    Shelf,
    Tools,
    bodies,
    calls,
    opened,
    text_of,
    until,
)
from tests.agent.wire import hangs, says, wired


async def test_cancelling_closes_the_connection(file: Path) -> None:
    """The server sees it go; the half answer is kept, shown and recorded."""
    async with (
        wired(hangs("Half an ", "answer"), says("Yes.")) as (model, server),
        opened(file, model) as here,
    ):
        run_id = await here.ask()
        following = asyncio.create_task(here.chunks(run_id))
        await until(server.reached.is_set, "the request")
        await until_said(here, run_id, "Half an answer")
        await here.oracle.cancel(USER, run_id)
        async with asyncio.timeout(LIMIT):
            await server.left.wait()
        chunks = await following

        assert text_of(chunks) == "Half an answer"
        assert chunks[-1].as_json()["error"]["code"] == "cancelled"
        assert len(bodies(chunks, "error")) == 1
        with pytest.raises(Cancelled):
            await here.answer(run_id)
        assert (await here.run(run_id)).status is RunStatus.CANCELLED
        (_, said) = await here.store.runs.messages(USER, run_id)
        assert said.content == "Half an answer"
        assert ExchangeRecord.read(said).partial
        (record,) = await here.records()
        assert record.estimated
        assert record.input_tokens > 0
        assert record.output_tokens > 0
        assert (record.model, record.run_id) == (model.name, run_id)
        assert len(here.told(SESSION_END)) == 1

        await here.answered("Go on.")
        sent = [message["content"] for message in server.asked[-1].json["messages"]]
        assert "Half an answer" in sent


async def until_said(here: Opened, run_id: int, text: str) -> None:
    """Wait until so much of an answer was shown."""
    seen = ""
    async with asyncio.timeout(LIMIT):
        async for batch in here.oracle.stream_chunks(USER, run_id):
            seen += text_of(batch)
            if seen == text:
                return


async def test_cancelling_stops_tools(file: Path) -> None:
    """What has ended is kept with its result, the rest is marked as stopped."""
    model = ScriptedModel([calls(("keyed", "quick"), ("echo", "wait"), text="Let me see.")])
    async with opened(file, model) as here:
        run_id = await here.ask()
        following = asyncio.create_task(here.chunks(run_id))
        await here.seen(run_id, "tool_call", 2)
        await here.seen(run_id, "tool_result")
        await here.oracle.cancel(USER, run_id)
        chunks = await following

        assert here.tools.at_once == 0
        assert chunks[-1].as_json()["error"]["code"] == "cancelled"
        (_, said) = await here.store.runs.messages(USER, run_id)
        (turn,) = ExchangeRecord.read(said).turns
        assert turn.text == "Let me see."
        assert [call.failed for call in turn.calls] == [False, True]


async def test_an_answer_that_was_cut_before_it_began_says_so(file: Path) -> None:
    """The exchange is never empty."""
    async with wired(hangs()) as (model, server), opened(file, model) as here:
        run_id = await here.ask()
        await until(server.reached.is_set, "the request")
        await here.oracle.cancel(USER, run_id)
        await here.ended(run_id)

        (_, said) = await here.store.runs.messages(USER, run_id)
        assert said.content == CUT_ANSWER_TEXT
        (record,) = await here.records()
        assert record.estimated


async def test_a_run_can_be_cancelled_before_its_tree_begins(file: Path) -> None:
    """While it chooses its model, say: it ends as cancelled, without a request."""
    gate = asyncio.Event()
    model = ScriptedModel(["Never said."])
    async with opened(file, shelf=Shelf([model], gate=gate)) as here:
        run_id = await here.ask()
        await until(lambda: here.models.asked, "a run that begins")
        await here.oracle.cancel(USER, run_id)
        gate.set()
        chunks = await here.chunks(run_id)

        assert chunks[-1].as_json()["error"]["code"] == "cancelled"
        assert (await here.run(run_id)).status is RunStatus.CANCELLED
        assert not model.requests


@pytest.mark.parametrize("serves", [True, False])
async def test_a_run_can_be_cancelled_from_another_process(file: Path, *, serves: bool) -> None:
    """The wish is in the store, and whoever drives the run finds it there."""
    tools = Tools()
    async with (
        opened(file, ScriptedModel([calls(("echo", "wait"))]), tools=tools, serves=serves) as here,
        opened(file, ScriptedModel([])) as there,
    ):
        run_id = await here.ask()
        await until(lambda: tools.at_once, "a tool at work")
        await there.oracle.cancel(USER, run_id)

        assert (await there.ended(run_id)).status is RunStatus.CANCELLED
        chunks = await there.chunks(run_id)
        assert chunks[-1].as_json()["error"]["code"] == "cancelled"
        assert tools.at_once == 0


async def test_a_run_that_was_cancelled_while_nobody_drove_it_ends(file: Path) -> None:
    """Left, cancelled by another process, and taken up: no request more, what was done is kept."""
    tools = Tools()
    first = ScriptedModel([calls(("echo", "1"), text="Let me see."), calls(("once", "wait"))])
    async with opened(file, first, tools=tools) as here:
        run_id = await here.ask()
        await until(lambda: tools.at_once, "a tool at work")
        await here.agency.engine.shutdown(0)
    async with opened(file, ScriptedModel([]), serves=False) as there:
        await there.oracle.cancel(USER, run_id)
    model = ScriptedModel(["Never said."])
    async with opened(file, model, tools=tools) as here:
        chunks = await here.chunks(run_id)

        assert chunks[-1].as_json()["error"]["code"] == "cancelled"
        assert (await here.run(run_id)).status is RunStatus.CANCELLED
        assert not model.requests
        (_, said) = await here.store.runs.messages(USER, run_id)
        done, cut = ExchangeRecord.read(said).turns
        assert (done.text, done.calls[0].result) == ("Let me see.", "echo says 1")
        assert cut.calls[0].failed
    assert len(tools.made) == 2


async def test_cancelling_what_has_ended_changes_nothing(file: Path) -> None:
    """It says how the run ended."""
    async with opened(file, ScriptedModel(["The oak."])) as here:
        run_id = await here.ask()
        await here.answer(run_id)

        assert await here.oracle.cancel(USER, run_id) is RunStatus.SUCCEEDED
        assert (await here.answer(run_id)).answer == "The oak."


async def test_the_next_question_is_answered_after_a_cancel(file: Path) -> None:
    """The lane is free again."""
    model = ScriptedModel([calls(("echo", "wait")), "Yes."])
    async with opened(file, model) as here:
        first = await here.ask()
        second = await here.ask("And?")
        await until(lambda: here.tools.at_once, "a tool at work")
        await here.oracle.cancel(USER, first)

        assert (await here.answer(second)).answer == "Yes."


async def test_a_run_that_is_cancelled_while_it_is_taken_up_keeps_what_was_done(
    file: Path,
) -> None:
    """Cancelled before its tree begins again: what earlier attempts did is applied and kept."""
    tools, gate = Tools(), asyncio.Event()
    first = ScriptedModel([calls(("echo", "1"), text="Let me see."), calls(("once", "wait"))])
    async with opened(file, first, tools=tools) as here:
        run_id = await here.ask()
        await until(lambda: tools.at_once, "a tool at work")
        await here.agency.engine.shutdown(0)
    model = ScriptedModel(["Never said."])
    async with opened(file, shelf=Shelf([model], gate=gate), tools=tools) as here:
        await until(lambda: here.models.asked, "a run that begins again")
        await here.oracle.cancel(USER, run_id)
        gate.set()
        await here.ended(run_id)

        assert (await here.run(run_id)).status is RunStatus.CANCELLED
        assert not model.requests
        (_, said) = await here.store.runs.messages(USER, run_id)
        assert ExchangeRecord.read(said).turns[0].calls[0].result == "echo says 1"


async def test_a_resumed_run_is_cancelled_wherever_it_is(file: Path) -> None:
    """Once it does something new, a cancel stops that at once: the connection is closed."""
    tools = Tools()
    first = says("Let me see.", calls=(("once", '{"query": "wait"}'),))
    async with wired(first, hangs("Half an ", "answer")) as (model, server):
        async with opened(file, model, tools=tools) as here:
            run_id = await here.ask()
            await until(lambda: tools.at_once, "a tool at work")
            await here.agency.engine.shutdown(0)
        async with opened(file, model, tools=tools) as here:
            await until(lambda: len(server.asked) == 2, "the second request")
            await here.oracle.cancel(USER, run_id)
            await until(server.left.is_set, "the end of the request")

            assert (await here.ended(run_id)).status is RunStatus.CANCELLED
            (_, said) = await here.store.runs.messages(USER, run_id)
            assert ExchangeRecord.read(said).turns[0].text == "Let me see."
