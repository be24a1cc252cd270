"""Cancelling, at every checkpoint: what came is saved, and what was used is metered."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.system.client import Client, of_type, types
from tests.system.dodona_up import Up
from tests.system.waiting import until, until_found
from tests.system.wire_model import Call, Script, calls, says


async def test_the_partial_exchange_is_metered(
    client: Client, script: Script, shared_up: Up
) -> None:
    """A call that was cut has a record, estimated, and nothing stays reserved."""
    script.will(says("This much. ", "And this.", hold=1))
    async with client.stream("Be long.") as chunks:
        await chunks.until("content")
        await client.cancel(run_id=chunks.run_id)
        await chunks.rest()
    (record,) = shared_up.home.rows(
        "SELECT model, output_tokens, estimated FROM token_records WHERE run_id = ?", chunks.run_id
    )
    assert record["model"] == "test-model"
    assert record["output_tokens"] > 0
    assert record["estimated"]
    held = shared_up.home.rows(
        "SELECT * FROM reservations WHERE status = 'held' AND run_id = ?", chunks.run_id
    )
    assert held == []


async def test_the_next_question_knows_of_it(client: Client, script: Script) -> None:
    """A cancelled exchange is part of the conversation: the next question has it before it."""
    script.will_in_turn(says("This much. ", "And this.", hold=1), says("Yes."))
    async with client.stream("Be long.") as chunks:
        await chunks.until("content")
        await client.cancel(run_id=chunks.run_id)
        await chunks.rest()
    assert (await client.ask("Did you stop?"))["answer"] == "Yes."
    said = script.asked[1].said
    assert [message["role"] for message in said] == ["user", "assistant", "user"]
    assert "This much." in said[1]["content"]


async def test_before_the_first_word(client: Client, script: Script) -> None:
    """An answer that was cut before any text is kept as a plain statement of that."""
    script.will(says("Never said.", hold=0))
    async with client.stream("Think.") as chunks:
        await script.reached(1)
        await client.cancel(run_id=chunks.run_id)
        seen = await chunks.rest()
    await until(lambda: script.asked[0].left, "the end of the connection to the model")
    assert seen[-1]["error"]["code"] == "cancelled"
    messages = (await client.run(chunks.run_id))["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant"]
    assert messages[1]["content"]
    assert "Never said." not in str(messages)


async def test_a_whole_answer_that_is_waited_for(client: Client, script: Script) -> None:
    """Whoever waits at POST /api/oracle is told: 409, with the code `cancelled`."""
    script.will(says("Never said.", hold=0))
    waiting = asyncio.create_task(client.try_to_ask("Think."))
    await script.reached(1)
    (run,) = await client.runs()
    await client.cancel(run_id=run["id"])
    answered = await waiting
    assert answered.status == 409
    assert answered.error["code"] == "cancelled"


async def test_in_the_queue(client: Client, script: Script) -> None:
    """A question that waits is cancelled without having begun, and the others go on."""
    script.will_by(lambda asked: says(asked.question.split()[0], hold=0))
    first = asyncio.create_task(client.ask("One?"))
    await script.reached(1)
    second = asyncio.create_task(client.try_to_ask("Two?"))

    async def queued() -> int | None:
        waiting = [run["id"] for run in await client.runs() if run["status"] == "queued"]
        return waiting[0] if waiting else None

    run_id = await until_found(queued, "the second question in the queue")
    assert run_id is not None
    assert (await client.cancel(run_id=run_id)).status == 200
    assert (await second).status == 409
    script.release()
    assert (await first)["answer"] == "One?"
    assert (await client.ask("Three?"))["answer"] == "Three?"
    assert [asked.question.split()[0] for asked in script.asked] == ["One?", "Three?"]
    assert (await client.run(run_id))["status"] == "cancelled"


async def test_during_a_tool(client: Client, script: Script, shared_up: Up, vault: Path) -> None:
    """The run ends though a tool still works; its call has a result in what is kept."""
    before = set(shared_up.home.indexes())
    script.will(calls(Call("vault_list")), says("There is an index."))
    await client.ask("Which notes are there?")
    (index,) = set(shared_up.home.indexes()) - before
    script.will(calls(Call("vault_search", {"query": "pigeons"}), hold=0), says("Never said."))
    async with client.stream("Who founded it?") as chunks:
        await script.reached(len(script.asked) + 1)
        with shared_up.home.locked(index):
            (vault / "pigeons.md").write_text("# Pigeons\n\nTwo pigeons founded the oracle.\n")
            await until_found(client.search_waits, "the change noticed")
            script.release()
            await chunks.until("tool_call")
            await client.cancel(run_id=chunks.run_id)
            seen = await chunks.rest()
    assert seen[-1]["error"]["code"] == "cancelled"
    run = await client.run(chunks.run_id)
    assert run["status"] == "cancelled"
    script.will(says("Fine."))
    await client.ask("And now?")
    called = [each for each in script.asked[-1].messages if each.get("tool_calls")]
    answered = {each.get("tool_call_id") for each in script.asked[-1].messages}
    for message in called:
        assert {call["id"] for call in message["tool_calls"]} <= answered


async def test_all_of_a_project(client: Client, script: Script) -> None:
    """Without a run's id all open runs of the project's context end."""
    script.will(says("Never said.", hold=0))
    asked = [asyncio.create_task(client.try_to_ask(f"Question {n}?")) for n in range(3)]

    async def open_runs() -> bool:
        return len(await client.runs()) == 3

    await until_found(open_runs, "three runs")
    await script.reached(1)
    cancelled = await client.cancel(project_id=client.project)
    assert cancelled.status == 200
    assert {answer.status for answer in await asyncio.gather(*asked)} == {409}
    assert {run["status"] for run in await client.runs()} == {"cancelled"}
    assert len(script.asked) == 1


async def test_what_has_ended(client: Client, script: Script) -> None:
    """To cancel what has ended changes nothing, and says so."""
    script.will(says("Answered."))
    answer = await client.ask("What?")
    cancelled = await client.cancel(run_id=answer["run_id"])
    assert cancelled.status == 200
    assert "succeeded" in cancelled.text
    assert (await client.run(answer["run_id"]))["status"] == "succeeded"


async def test_an_unknown_run(client: Client) -> None:
    """There is nothing to cancel."""
    assert (await client.cancel(run_id=999_999_999)).status == 404


async def test_twice(client: Client, script: Script) -> None:
    """The second cancellation of a run does no harm: it ends once."""
    script.will(says("This much. ", "And this.", hold=1))
    async with client.stream("Be long.") as chunks:
        await chunks.until("content")
        both = [client.cancel(run_id=chunks.run_id) for _ in range(2)]
        assert {each.status for each in await asyncio.gather(*both)} == {200}
        seen = await chunks.rest()
    assert types(seen).count("error") == 1
    assert len((await client.run(chunks.run_id))["messages"]) == 2


async def test_a_client_that_leaves(client: Client, script: Script) -> None:
    """A stream that nobody reads any more does not cancel its run."""
    script.will(says("This much. ", "And this.", hold=1))
    async with client.stream("Be long.") as chunks:
        await chunks.until("content")
    script.release()
    run = await client.ended(chunks.run_id)
    assert (run["status"], run["answer"]) == ("succeeded", "This much. And this.")
    assert not script.asked[0].left


async def test_between_two_turns(client: Client, script: Script) -> None:
    """Results that came before the end are saved with their calls."""
    script.will(calls(Call("vault_read", {"path": "oak.md"})), says("Never said.", hold=0))
    async with client.stream("Read it.") as chunks:
        await chunks.until("tool_result")
        await script.reached(2)
        await client.cancel(run_id=chunks.run_id)
        seen = await chunks.rest()
    assert len(of_type(seen, "tool_result")) == 1
    run = await client.run(chunks.run_id)
    assert "spoke through its leaves" in str(run["messages"])
