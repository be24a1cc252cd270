"""What models and clients do that they should not, and what comes of it."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from tests.system.client import Client, of_type, text_of, types
from tests.system.waiting import until
from tests.system.wire_model import Call, Script, WireModel, calls, refuses, says


async def test_an_empty_answer(client: Client, script: Script) -> None:
    """A model that says nothing leaves a plain statement of that, and the next question works."""
    script.will_in_turn(says(), says("Now I speak."))
    answer = await client.ask("Anything?")
    assert answer["answer"]
    assert (await client.ask("And now?"))["answer"] == "Now I speak."
    assert len(script.asked) == 2


async def test_an_answer_cut_by_its_length(client: Client, script: Script) -> None:
    """What came is the answer."""
    script.will(says("A beginning", finish="length"))
    chunks = await client.streamed("Be long.")
    assert text_of(chunks) == "A beginning"
    assert types(chunks)[-1] == "done"


async def test_a_refusal(client: Client, script: Script) -> None:
    """A provider's filter ends the run with what was said."""
    script.will(says("I would rather not.", finish="content_filter"))
    chunks = await client.streamed("Something bad.")
    assert text_of(chunks) == "I would rather not."
    assert types(chunks)[-1] == "done"


async def test_the_same_id_twice(client: Client, script: Script) -> None:
    """Calls that share an id have a result each."""
    twins = [Call("vault_read", {"path": path}, id="same") for path in ("oak.md", "budgets.md")]
    script.will(calls(*twins), says("Read."))
    chunks = await client.streamed("Read both.")
    assert [each["status"] for each in of_type(chunks, "tool_result")] == ["success"] * 2
    told = script.asked[1].results
    assert "spoke through" in told[0]
    assert "500 drachmas" in told[1]
    ids = [each["tool_call_id"] for each in script.asked[1].messages if each["role"] == "tool"]
    assert len(set(ids)) == 2


async def test_calls_with_a_finish_of_stop(client: Client, script: Script) -> None:
    """Not every server says why it stopped as it should."""
    script.will(calls(Call("vault_read", {"path": "oak.md"}), finish="stop"), says("Read."))
    assert (await client.ask("Read it."))["answer"] == "Read."
    assert len(script.asked) == 2


async def test_a_hundred_calls(client: Client, script: Script) -> None:
    """Each has its result; no more are made than are allowed in a turn."""
    script.will(calls(*(Call("vault_list") for _ in range(100))), says("Enough."))
    chunks = await client.streamed("List.")
    assert len(script.asked[1].results) == 100
    results = [each for each in of_type(chunks, "tool_result") if each["status"] == "success"]
    assert len(results) == 5
    assert text_of(chunks) == "Enough."


async def test_a_model_without_account(client: Client, script: Script) -> None:
    """Where a provider counts nothing, we do: limits hold all the same."""
    script.will(says("Counted by us.", usage=None))
    answer = await client.ask("How many?")
    assert answer["answer"] == "Counted by us."
    (record,) = client.up.home.rows(
        "SELECT input_tokens, output_tokens, estimated FROM token_records WHERE run_id = ?",
        answer["run_id"],
    )
    assert record["input_tokens"] > 0
    assert record["output_tokens"] > 0
    assert record["estimated"]


async def test_odd_characters(client: Client, script: Script) -> None:
    """What is text comes back as it was; what is none does no harm."""
    odd = "a\u0000b \u2028 \U0001f333 '; DROP TABLE runs; -- \\ \" </script>"
    script.will(says(odd))
    answered = await client.try_to_ask(odd)
    assert answered.status in (200, 400)
    if answered.status == 200:  # a database may have no NUL: then its picture
        assert answered.json["answer"].replace("\u2400", "\u0000") == odd
    body = f'{{"question": "half \\ud800 {client.tag}", "project_id": "{client.project}"}}'
    answered = await client.send(
        "POST", "/api/oracle", data=body, headers={"Content-Type": "application/json"}
    )
    assert answered.status in (200, 400), answered.text
    assert (await client.ask("And now?"))["run_id"]


async def test_cancelled_between_two_tries(client: Client, script: Script) -> None:
    """A run that waits to ask a provider again ends when it is told to."""
    script.will(refuses(429, "slow down", **{"Retry-After": "15"}))
    async with client.stream("Who?") as chunks:
        await script.reached(1)
        await client.cancel(run_id=chunks.run_id)
        seen = await chunks.rest()
    assert seen[-1]["error"]["code"] == "cancelled"
    assert len(script.asked) == 1


async def test_many_projects_at_once(client: Client, script: Script) -> None:
    """Thirty questions at once are thirty answers."""
    script.will_by(lambda asked: says(*asked.question.split()[1]))
    others = [client.in_project(f"{client.project}-{n}") for n in range(30)]
    await asyncio.gather(*(other.make_project() for other in others))
    answers = await asyncio.gather(
        *(other.ask(f"Number {n} please") for n, other in enumerate(others))
    )
    assert [answer["answer"] for answer in answers] == [str(n) for n in range(30)]
    assert len(script.asked) == 30


async def test_a_client_that_does_not_read(own: Client, wire: WireModel, script: Script) -> None:
    """A stream that nobody takes in does not hold up the run."""
    own.up.home.write(base_url=wire.url, agent="max_tokens = 2_000_000")
    await own.up.begin()
    much = "The oak of Dodona spoke through its leaves. " * 2500
    script.will(says(*([much] * 40)))
    async with own.stream("Be very long.") as chunks:
        await chunks.next()
        run = await own.ended(chunks.run_id)
    assert run["status"] == "succeeded"
    assert len(run["answer"]) == 40 * len(much)


async def test_a_vault_that_is_gone(client: Client, script: Script, vault: Path) -> None:
    """Tools say so, without a path of this machine, and the run goes on."""
    os.rename(vault, vault.parent / "elsewhere")
    script.will(calls(Call("vault_list")), says("I cannot see the notes."))
    chunks = await client.streamed("Which?")
    (result,) = of_type(chunks, "tool_result")
    assert result["status"] == "error"
    assert str(vault.parent) not in str(chunks)
    assert text_of(chunks) == "I cannot see the notes."


async def test_two_readers_of_a_cancelled_run(client: Client, script: Script) -> None:
    """Both are told of the end, and of the same one."""
    script.will(says("This much. ", "No more.", hold=1))
    async with client.stream("Be long.") as chunks:
        await chunks.until("content")
        other = asyncio.create_task(client.followed(chunks.run_id))
        await client.cancel(run_id=chunks.run_id)
        seen = await chunks.rest()
    assert await other == seen
    await until(lambda: script.asked[0].left, "the end of the connection to the model")


async def test_a_cancelled_run_read_again(client: Client, script: Script) -> None:
    """Whoever comes after the end sees what was said before it, too."""
    script.will(says("This much. ", "No more.", hold=1))
    async with client.stream("Be long.") as chunks:
        await chunks.until("content")
        await client.cancel(run_id=chunks.run_id)
        seen = await chunks.rest()
    replayed = await client.followed(chunks.run_id)
    assert text_of(replayed) == "This much. "
    assert replayed[-1] == seen[-1]
