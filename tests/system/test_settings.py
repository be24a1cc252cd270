"""Settings of the user: kept, complete, and each with an effect."""

from __future__ import annotations

import asyncio
import json

from tests.system.client import Client, notices, of_type, text_of
from tests.system.waiting import until
from tests.system.wire_model import Call, Script, calls, says

DEFAULTS = {
    "oracle_model": "",
    "subagent_model": "",
    "thinking_enabled": True,
    "librarian_timeout": 1200,
    "max_context_nodes": 30,
    "max_iterations": 15,
    "soft_warning_percent": 70,
    "token_budget": 50_000,
    "token_warning_percent": 80,
    "timeout_seconds": 120,
    "max_tool_calls_per_turn": 5,
    "max_parallel_tools": 3,
}


async def test_they_are_kept(own: Client) -> None:
    """Defaults are those of seed 001; a change survives, and what was not named stays."""
    await own.up.begin()
    assert await own.get("/api/settings") == DEFAULTS
    for values in ({"max_iterations": 7}, {"timeout_seconds": 60}):
        answered = await own.send("PATCH", "/api/settings", values)
        assert answered.status == 200
    wanted = {**DEFAULTS, "max_iterations": 7, "timeout_seconds": 60}
    assert answered.json == wanted
    await own.up.begin_again()
    assert await own.get("/api/settings") == wanted


async def test_settings_of_an_older_version(client: Client) -> None:
    """What was kept before a field existed takes its default."""
    await client.set(max_iterations=7)
    older = json.dumps({"max_iterations": 9})
    with client.up.home.changing() as db:
        columns = [row[1] for row in db.execute("PRAGMA table_info(settings)")]
        (column,) = [name for name in columns if "json" in name]
        db.execute(f"UPDATE settings SET {column} = ?", (older,))  # noqa: S608 - of our schema
    assert await client.get("/api/settings") == {**DEFAULTS, "max_iterations": 9}


async def test_changes_at_once(client: Client) -> None:
    """Two changes of different fields do not lose each other."""
    await client.set(max_iterations=15)
    values = [{"max_iterations": 9}, {"timeout_seconds": 50}, {"max_parallel_tools": 2}]
    await asyncio.gather(*(client.send("PATCH", "/api/settings", each) for each in values))
    settings = await client.get("/api/settings")
    for each in values:
        assert settings.items() >= each.items()


async def test_oracle_model(client: Client, script: Script) -> None:
    """It is the model that is asked, unless a question names another."""
    await client.set(oracle_model="chosen-model")
    script.will(says("Here."))
    assert (await client.ask("Who?"))["model_used"] == "chosen-model"
    assert (await client.ask("Who?", model="asked-model"))["model_used"] == "asked-model"
    assert [asked.json["model"] for asked in script.asked] == ["chosen-model", "asked-model"]


async def test_thinking_enabled(own: Client, script: Script) -> None:
    """It says whether the model is asked to think; a question may say otherwise."""
    config = own.up.home.config
    text = config.read_text().replace("openai-compatible", "deepseek")  # has a switch
    config.write_text(text.replace("test-model", "deepseek-chat"))
    await own.up.begin()
    script.will(says("Here."))
    for enabled, wish in ((True, None), (False, None), (False, True), (True, False)):
        await own.set(thinking_enabled=enabled)
        await own.ask("Who?", new=True, **({} if wish is None else {"thinking": wish}))
    told = [asked.json["thinking"]["type"] for asked in script.asked]
    assert told == ["enabled", "disabled", "enabled", "disabled"]


async def test_thinking_is_shown(client: Client, script: Script) -> None:
    """What a model thinks is a chunk of its own, and no part of the answer."""
    script.will(says("Here.", thinking="Let me see."))
    chunks = await client.streamed("Who?")
    assert [each["content"] for each in of_type(chunks, "thinking")] == ["Let me see."]
    assert (await client.run(chunks[0]["run_id"]))["answer"] == "Here."


async def test_subagent_model(client: Client, script: Script) -> None:
    """The Librarian has a model of its own; what it says is a result like any tool's."""
    await client.set(subagent_model="small-model")
    script.will_by(
        lambda asked: (
            says("A summary of all notes.")
            if "Summarise" in asked.question
            else (calls(delegation(script)) if asked.round == 0 else says("Summarised."))
        )
    )
    chunks = await client.streamed("What is in the notes?")
    assert [asked.json["model"] for asked in script.asked] == [
        *("test-model", "small-model", "test-model")
    ]
    (result,) = of_type(chunks, "tool_result")
    assert (result["status"], result["result"]) == ("success", "A summary of all notes.")
    assert text_of(chunks) == "Summarised."
    assert chunks[-1]["tokens_used"] == 3 * 110


def delegation(script: Script) -> Call:
    return Call("delegate_librarian", {"task": f"Summarise the notes. {script.tag}"})


async def test_librarian_timeout(own: Client, script: Script) -> None:
    """A Librarian that takes too long is stopped; the run, whose own clock stood still, goes on."""
    await own.up.begin()
    await own.set(librarian_timeout=12, timeout_seconds=10)
    script.will_by(
        lambda asked: (
            says("Never said.", hold=0)
            if "Summarise" in asked.question
            else (calls(delegation(script)) if asked.round == 0 else says("Without it."))
        )
    )
    async with own.stream("What is in the notes?") as stream:
        await script.reached(2)
        own.up.advance_clock()
        own.up.advance_clock()
        chunks = await stream.rest()
    (result,) = of_type(chunks, "tool_result")
    assert result["status"] == "error"
    assert "12 seconds" in result["result"]
    told = [each["system_message"] for each in of_type(chunks, "system")]
    assert told == ["The librarian failed."], "and nothing of a limit of the run"
    assert text_of(chunks) == "Without it."
    await until(lambda: script.asked[1].left, "the end of the Librarian's connection")


async def test_max_context_nodes(client: Client, script: Script) -> None:
    """So many exchanges at most go along with a question."""
    script.will(says("Answered."))
    for number in range(3):
        await client.ask(f"Question {number}?")
    assert "Question 0?" in str(script.asked[-1].messages)
    await client.set(max_context_nodes=1)
    await client.ask("The last?")
    said = str(script.asked[-1].messages)
    assert "Question 2?" in said
    assert "Question 1?" not in said


async def test_warning_percents(client: Client, script: Script) -> None:
    """They move the point at which a warning comes."""
    await client.set(max_iterations=10, soft_warning_percent=50)
    script.will_by(
        lambda asked: (
            says("Done.")
            if asked.round == 6
            else calls(Call("vault_search", {"query": f"oak {asked.round}"}), usage=(1, 99))
        )
    )
    (warning,) = notices(await client.streamed("Search."), "limit_warning")
    assert warning["metadata"]["current_value"] == 5
    await client.set(soft_warning_percent=90, token_budget=1000, token_warning_percent=50)
    (warning,) = notices(await client.streamed("Search.", new=True), "limit_warning")
    assert (warning["metadata"]["current_value"], warning["metadata"]["limit_value"]) == (500, 1000)


async def test_a_run_keeps_the_settings_it_began_with(client: Client, script: Script) -> None:
    """A change while a run goes on is for the next one."""
    script.will(calls(Call("vault_list"), hold=0), says("Answered."))
    asked = asyncio.create_task(client.streamed("What?"))
    await script.reached(1)
    await client.set(max_iterations=1)
    script.release()
    assert notices(await asked, "limit_reached") == []
    assert len(script.asked) == 2
