"""One run at a time in a context, in the order of the questions; others do not wait for it."""

from __future__ import annotations

import asyncio
import time

from tests.system.client import Client, of_type, types
from tests.system.dodona_up import Home
from tests.system.waiting import until_found
from tests.system.wire_model import Script, says


async def test_two_questions_at_once(client: Client, script: Script) -> None:
    """The second begins when the first has ended, and has it in its history."""
    script.will_by(lambda asked: says("First." if "one" in asked.question else "Second.", hold=0))
    one = asyncio.create_task(client.ask("Question one?"))
    await script.reached(1)
    two = asyncio.create_task(client.ask("Question two?"))

    async def queued() -> bool:
        return [run["status"] for run in await client.runs()] == ["queued", "running"]

    await until_found(queued, "the second question in the queue")
    assert len(script.asked) == 1
    script.release()
    first, second = await asyncio.gather(one, two)
    assert (first["answer"], second["answer"]) == ("First.", "Second.")
    assert first["run_id"] < second["run_id"]
    said = script.asked[1].said
    assert [message["role"] for message in said] == ["user", "assistant", "user"]
    assert said[1]["content"] == "First."
    assert script.most_at_once == 1


async def test_many_questions_at_once(client: Client, script: Script) -> None:
    """None is lost, none is answered twice, and each follows the one before it."""
    script.will_by(lambda asked: says(asked.question.split()[1]))
    answers = await asyncio.gather(*(client.ask(f"Number {n} please") for n in range(8)))
    assert [answer["answer"] for answer in answers] == [str(n) for n in range(8)]
    assert len(script.asked) == 8
    assert script.most_at_once == 1
    sizes = [len(asked.messages) for asked in script.asked]
    assert [size - sizes[0] for size in sizes] == [2 * n for n in range(8)]
    order = [asked.question.split()[1] for asked in script.asked]
    by_run = sorted(answers, key=lambda answer: answer["run_id"])
    assert order == [answer["answer"] for answer in by_run]


async def test_projects_do_not_wait_for_each_other(client: Client, script: Script) -> None:
    """While one project's model thinks, another's question is answered."""
    other = client.in_project(f"{client.project}-b")
    await other.make_project()
    script.will_by(lambda asked: says("Slow.", hold=0) if "slow" in asked.question else says("Ok."))
    slow = asyncio.create_task(client.ask("A slow one?"))
    await script.reached(1)
    assert (await other.ask("Another?"))["answer"] == "Ok."
    assert not slow.done()
    script.release()
    assert (await slow)["answer"] == "Slow."
    assert len(script.asked[1].said) == 1, "and hears nothing of it"


async def test_streams_of_a_waiting_question(client: Client, script: Script) -> None:
    """A stream of a question that waits stays open, and has its own chunks only."""
    script.will_by(lambda asked: says(asked.question.split()[0], hold=0))
    async with client.stream("One?") as first:
        await script.reached(1)
        second = asyncio.create_task(client.streamed("Two?"))
        script.release()
        one = await first.rest()
    two = await second
    assert [chunk["content"] for chunk in of_type(one, "content")] == ["One?"]
    assert [chunk["content"] for chunk in of_type(two, "content")] == ["Two?"]
    assert {chunk["run_id"] for chunk in two} != {chunk["run_id"] for chunk in one}
    assert types(two)[-1] == "done"


async def test_a_context_of_100_000_messages(own: Client, script: Script) -> None:
    """It answers as any other: the request holds the newest exchanges, not all of them."""
    await own.up.begin()
    script.will(says("Found."))
    await own.ask("The first question?")
    grow(own.up.home, 50_000)
    assert (await own.ask("And now?"))["answer"] == "Found."
    said = script.asked[-1].said
    assert len(said) <= 2 * 30 + 1
    assert said[-2]["content"] == "Answer 49999."
    assert (await own.ask("And again?"))["answer"] == "Found."
    context = await own.context()
    assert context["status"] == "active"
    assert context["recent_exchanges"][-1]["content"] == "Found."
    assert len(await own.runs()) == 50


def grow(home: Home, exchanges: int) -> None:
    """Put so many exchanges behind the head of the only conversation."""
    (talk,) = home.rows("SELECT id, head_id FROM conversations")
    now, first = time.time(), talk["head_id"] + 1
    ids = range(first, first + exchanges)
    runs = [(n, talk["id"], n - 1, now, now, now) for n in ids]
    said = [
        (talk["id"], n, place, role, f"{name} {n - first}{mark}", now)
        for n in ids
        for place, (role, name, mark) in enumerate(
            [("user", "Question", "?"), ("assistant", "Answer", ".")]
        )
    ]
    with home.changing() as db:
        db.executemany(
            "INSERT INTO runs (id, conversation_id, parent_id, follows_head, status, attempt,"
            " user_id, tokens, created_at, started_at, ended_at)"
            " VALUES (?, ?, ?, 1, 'succeeded', 1, 'local', 10, ?, ?, ?)",
            runs,
        )
        db.executemany(
            "INSERT INTO messages (conversation_id, run_id, ordinal, role, content, token_count,"
            " created_at) VALUES (?, ?, ?, ?, ?, 5, ?)",
            said,
        )
        db.execute("UPDATE conversations SET head_id = ?, updated_at = ?", (ids[-1], now))
