"""Contexts: one per project, seen and closed over HTTP, across models, idle times and restarts."""

from __future__ import annotations

import asyncio
from datetime import datetime

from tests.system.client import Client
from tests.system.waiting import until_found
from tests.system.wire_model import Call, Script, calls, says


async def closed(client: Client) -> bool:
    return (await client.context())["status"] == "closed"


async def test_as_seed_000_has_it(client: Client, script: Script) -> None:
    """The context is served in the seed's JSON, with its exchanges and their tool calls."""
    script.will(calls(Call("vault_read", {"path": "oak.md"})), says("Through its leaves."))
    answer = await client.ask("How did the oak speak?")
    context = await client.context()
    assert {
        *("id", "user_id", "project_id", "session_start", "last_activity", "last_model"),
        *("token_budget", "tokens_used", "compressed_summary", "recent_exchanges"),
        *("key_decisions", "mentioned_symbols", "mentioned_files", "status"),
        "compression_count",
    } <= context.keys()
    assert context["project_id"] == client.project
    assert context["status"] == "active"
    assert context["last_model"] == "test-model"
    assert context["token_budget"] == 16_000
    assert 0 < context["tokens_used"] <= 16_000 * 1.1
    assert context["tokens_used"] + answer["context_tokens_remaining"] == 16_000
    user, assistant = context["recent_exchanges"]
    assert (user["role"], assistant["role"]) == ("user", "assistant")
    assert "How did the oak speak?" in user["content"]
    assert assistant["content"] == "Through its leaves."
    (called,) = assistant["tool_calls"]
    assert (called["name"], called["status"]) == ("vault_read", "success")
    assert called["arguments"]["path"] == "oak.md"
    for exchange in (user, assistant):
        assert exchange["token_count"] > 0
        datetime.fromisoformat(exchange["timestamp"])
    datetime.fromisoformat(context["session_start"])
    datetime.fromisoformat(context["last_activity"])


async def test_before_the_first_question(client: Client) -> None:
    """A project without a question has no context yet; an unknown project is not found."""
    answered = await client.send(
        "GET", "/api/oracle/context", params={"project_id": client.project}
    )
    assert answered.status == 404
    answered = await client.send("GET", "/api/oracle/context", params={"project_id": "nowhere"})
    assert answered.status == 404


async def test_closing_and_opening(client: Client, script: Script) -> None:
    """A closed context stays to be seen; the next question begins another conversation in it."""
    script.will(says("Answered."))
    await client.ask("The first?")
    before = await client.context()
    for _ in range(2):  # to close it twice is to close it
        answered = await client.send(
            "DELETE", "/api/oracle/context", params={"project_id": client.project}
        )
        assert answered.status in (200, 204), answered.text
    assert await closed(client)
    await client.ask("The second?")
    context = await client.context()
    assert context["status"] == "active"
    assert context["id"] == before["id"]
    assert len(context["recent_exchanges"]) == 2
    assert len(script.asked[1].messages) == len(script.asked[0].messages)
    assert len(await client.runs()) == 2, "what was said stays"


async def test_closing_while_a_run_goes_on(client: Client, script: Script) -> None:
    """The run ends well; the question after it begins anew."""
    script.will(says("Answered.", hold=0))
    asked = asyncio.create_task(client.ask("The first?"))
    await script.reached(1)
    await client.send("DELETE", "/api/oracle/context", params={"project_id": client.project})
    script.release()
    assert (await asked)["answer"] == "Answered."
    await client.ask("The second?")
    assert len(script.asked[1].messages) == len(script.asked[0].messages)


async def test_new(client: Client, script: Script) -> None:
    """A question may ask for a conversation of its own."""
    script.will(says("Answered."))
    await client.ask("The first?")
    await client.ask("The second?", new=True)
    await client.ask("The third?")
    sizes = [len(asked.messages) for asked in script.asked]
    assert sizes[1] == sizes[0]
    assert sizes[2] == sizes[0] + 2
    assert "The second?" in str(script.asked[2].messages)
    assert "The first?" not in str(script.asked[2].messages)


async def test_branches(client: Client, script: Script) -> None:
    """A question may go on from an earlier answer: what came after it is not in its history."""
    script.will(says("Answered."))
    first = await client.ask("The first?")
    await client.ask("The second?")
    third = await client.ask("The third?", context_id=first["context_id"])
    assert "The second?" not in str(script.asked[2].messages)
    assert "The first?" in str(script.asked[2].messages)
    await client.ask("The fourth?", context_id=third["context_id"])
    said = str(script.asked[3].messages)
    assert ["The first?" in said, "The second?" in said, "The third?" in said] == [
        True,
        False,
        True,
    ]


async def test_another_model(client: Client, script: Script) -> None:
    """A context is suspended until another model has answered, and what was known goes along."""
    script.will(calls(Call("vault_read", {"path": "oak.md"})), says("Through its leaves."))
    await client.ask("How did the oak speak?")
    script.will(says("Yes.", hold=0))
    asking = asyncio.create_task(client.ask("Are you sure?", model="other-model"))
    await script.reached(3)
    assert (await client.context())["status"] == "suspended"
    script.release()
    assert (await asking)["model_used"] == "other-model"
    last = script.asked[-1]
    assert last.json["model"] == "other-model"
    assert "How did the oak speak?" in str(last.messages)
    assert "Through its leaves." in str(last.messages)
    context = await client.context()
    assert (context["status"], context["last_model"]) == ("active", "other-model")
    assert (await client.ask("And now?"))["model_used"] == "test-model"


async def test_idle(own: Client, script: Script) -> None:
    """A context that nobody used for longer than the set time closes by itself; others go on."""
    script.will(says("Answered."))
    await own.up.begin()
    other = own.in_project("other")
    await other.make_project()
    for client in (own, other):
        await client.ask("The first?")
    await own.up.leave()
    with own.up.home.changing() as db:
        for project, minutes in (("default", 1441), ("other", 1400)):
            db.execute(
                "UPDATE oracle_contexts SET last_activity = last_activity - ? * 60"
                " WHERE project_id = ?",
                (minutes, project),
            )
    await own.up.begin()
    await until_found(lambda: closed(own), "the end of the idle context")
    assert not await closed(other)
    for client in (own, other):
        await client.ask("The second?")
    assert ["The first?" in str(asked.messages) for asked in script.asked[2:]] == [False, True]
    assert (await own.context())["status"] == "active"
    assert len((await other.context())["recent_exchanges"]) == 4


async def test_a_full_window(own: Client, script: Script) -> None:
    """When it is full it drops to half at once, so that the requests after it share a prefix.

    So it is where nothing is summed up before.
    """
    home = own.up.home
    home.config.write_text(f"{home.config.read_text()}[context]\ncompress = false\n")
    await own.up.begin()
    await own.set(max_context_nodes=4)
    script.will(says("Answered."))
    for number in range(8):
        await own.ask(f"Question {number}?")
    assert script.summing == []
    kept = [len(asked.said) // 2 for asked in script.asked]
    assert kept[:5] == [0, 1, 2, 3, 4]
    assert max(kept) <= 4
    assert kept[5] <= 2, "it drops to half"
    assert kept[6] == kept[5] + 1, "and grows again from there"
    assert "Question 4?" in str(script.asked[5].messages)
