"""How far a run may go: each limit ends it in its own way, with all that came kept."""

from __future__ import annotations

from tests.system.client import Client, notices, of_type, text_of, types
from tests.system.dodona_up import Up
from tests.system.waiting import until
from tests.system.wire_model import Asked, Call, Reply, Script, calls, says


def searching(asked: Asked) -> Reply:
    """A call that is never the same."""
    return calls(Call("vault_search", {"query": f"oak {asked.round}"}))


async def test_time(own: Client, script: Script) -> None:
    """A run that lasts too long ends where it stands, and the model's connection is closed."""
    await own.up.begin()
    await own.set(timeout_seconds=10)
    script.will(says("This much. ", "Never said.", hold=1))
    async with own.stream("Take your time.") as stream:
        await stream.until("content")
        own.up.advance_clock()
        chunks = await stream.rest()
    (reached,) = notices(chunks, "limit_reached")
    assert "10" in reached["system_message"]
    assert types(chunks)[-1] == "done"
    await until(lambda: script.asked[0].left, "the end of the connection to the model")
    run = await own.run(chunks[0]["run_id"])
    assert "This much." in run["messages"][1]["content"]


async def test_one_turn(client: Client, script: Script) -> None:
    """With one turn, a model that calls a tool is not asked again."""
    await client.set(max_iterations=1)
    script.will_by(searching)
    chunks = await client.streamed("Search.")
    assert len(script.asked) == 1
    assert len(notices(chunks, "limit_reached")) == 1
    assert len(of_type(chunks, "tool_result")) == 1
    assert types(chunks)[-1] == "done"


async def test_no_warning_far_from_a_limit(client: Client, script: Script) -> None:
    """Whoever is far from every limit hears nothing of them."""
    script.will(calls(Call("vault_list")), says("Answered."))
    chunks = await client.streamed("What?")
    assert of_type(chunks, "system") == []
    assert all(asked.notices == [] for asked in script.asked)


async def test_warnings_are_not_kept(client: Client, script: Script) -> None:
    """A warning is for this run: neither its messages nor the next request hold it."""
    await client.set(max_iterations=3)
    script.will_by(lambda asked: says("Yes.") if "again" in asked.question else searching(asked))
    chunks = await client.streamed("Search.")
    assert notices(chunks, "limit_warning")
    run = await client.run(chunks[0]["run_id"])
    told = notices(chunks, "limit_warning")[0]["system_message"]
    assert told not in str(run["messages"])
    await client.ask("And again?")
    assert script.asked[-1].notices == []


async def test_each_warning_comes_once(client: Client, script: Script) -> None:
    """A limit is warned of once, though it stays near."""
    await client.set(max_iterations=6, soft_warning_percent=50)
    script.will_by(searching)
    chunks = await client.streamed("Search.")
    (warning,) = notices(chunks, "limit_warning")
    assert warning["metadata"]["current_value"] == 3
    assert warning["metadata"]["limit_value"] == 6
    assert len(script.asked) == 6


async def test_calls_in_a_turn(client: Client, script: Script) -> None:
    """Calls beyond the limit are not made, and each is answered with an error."""
    await client.set(max_tool_calls_per_turn=2)
    paths = ("oak.md", "budgets.md", "travel/delphi.md", "oak.md")
    script.will(calls(*(Call("vault_read", {"path": path}) for path in paths)), says("Read."))
    chunks = await client.streamed("Read all.")
    results = of_type(chunks, "tool_result")
    assert [each["status"] for each in results].count("success") == 2
    told = script.asked[1].results
    assert ["spoke through" in each for each in told] == [True, False, False, False]
    assert ["at most 2" in each for each in told] == [False, False, True, True]
    assert text_of(chunks) == "Read."


async def test_tools_at_once(client: Client, script: Script, shared_up: Up) -> None:
    """At most `max_parallel_tools` calls overlap; with one, none do."""
    made = calls(*(Call("vault_search", {"query": f"oak {n}"}) for n in range(5)))
    script.will(made, says("Read."))
    most: dict[int, int] = {}
    for limit in (1, 3):
        await client.set(max_parallel_tools=limit)
        answer = await client.ask("Read all.", new=True)
        assert len(answer["tool_calls"]) == 5
        most[limit] = overlap(shared_up, answer["run_id"])
    assert most == {1: 1, 3: 3}


def overlap(up: Up, run_id: int) -> int:
    """How many tool steps of a run were under way at once, at most."""
    steps = up.home.rows(
        "SELECT started_at, ended_at FROM steps WHERE run_id = ? AND leaf = 'tools.execute'",
        run_id,
    )
    spans = [(step["started_at"], step["ended_at"]) for step in steps]
    return max(sum(start <= begin < end for start, end in spans) for begin, _ in spans)


async def test_no_progress(client: Client, script: Script) -> None:
    """Same action, same result, three times: the model has one more request, then it ends."""
    same = calls(Call("vault_read", {"path": "oak.md"}), texts=("Again. ",))
    script.will_by(lambda asked: says("Yes.") if "And now?" in asked.question else same)
    chunks = await client.streamed("Go nowhere.")
    assert notices(chunks, "no_progress")
    assert types(chunks)[-1] == "done"
    assert len(script.asked) == 4
    assert any("No progress" in hint for hint in script.asked[3].notices)
    assert all("No progress" not in hint for hint in script.asked[2].notices)
    await client.ask("And now?")
    assert str(script.asked[4].messages).count("Again. ") == 4, "what was said is kept"


async def test_progress_after_the_notice(client: Client, script: Script) -> None:
    """A model that does something else after the notice goes on."""
    same = calls(Call("vault_read", {"path": "oak.md"}))
    script.will(same, same, same, calls(Call("vault_read", {"path": "budgets.md"})), says("Found."))
    chunks = await client.streamed("Find it.")
    assert text_of(chunks) == "Found."
    assert len(script.asked) == 5


async def test_errors_in_a_row(client: Client, script: Script) -> None:
    """Three tool errors in a row end the run, and say so."""
    script.will_by(lambda asked: calls(Call("vault_read", {"path": f"none-{asked.round}.md"})))
    chunks = await client.streamed("Find it.")
    assert [each["status"] for each in of_type(chunks, "tool_result")] == ["error"] * 3
    assert len(notices(chunks, "error_limit")) == 1
    assert types(chunks)[-1] == "done"
    assert len(script.asked) == 3


async def test_errors_with_success_between(client: Client, script: Script) -> None:
    """A call that works begins the count anew."""
    wrong = calls(Call("vault_read", {"path": "none.md"}), Call("vault_read", {"path": "no.md"}))
    right = calls(Call("vault_read", {"path": "oak.md"}))
    script.will(wrong, right, wrong, says("Enough."))
    chunks = await client.streamed("Find it.")
    assert text_of(chunks) == "Enough."
    assert notices(chunks, "error_limit") == []


async def test_malformed_arguments(client: Client, script: Script) -> None:
    """They go back to the model as an error it can use, and the run goes on."""
    script.will(
        calls(Call("vault_read", '{"path": "oak.md'), texts=("Let me see. ",)),
        calls(Call("vault_read", '{"path": "oak.md"}')),
        says("Through its leaves."),
    )
    chunks = await client.streamed("How did the oak speak?")
    results = of_type(chunks, "tool_result")
    assert [each["status"] for each in results] == ["error", "success"]
    assert "JSON" in script.asked[1].results[0]
    assert "path" in script.asked[1].results[0]
    assert text_of(chunks).endswith("Through its leaves.")


async def test_arguments_that_do_not_fit(client: Client, script: Script) -> None:
    """The error names the parameter that is wrong, and those there are."""
    script.will(
        calls(Call("vault_search", {"limit": 5}), Call("vault_read", {"file": "oak.md"})),
        says("Sorry."),
    )
    await client.ask("Find it.")
    search, read = script.asked[1].results
    assert "'query' is missing" in search
    assert "'file'" in read
    assert "path" in read


async def test_a_tool_that_is_not_there(client: Client, script: Script) -> None:
    """The error names the nearest tool."""
    script.will(calls(Call("vault_reed", {"path": "oak.md"})), says("Sorry."))
    chunks = await client.streamed("Read it.")
    (result,) = of_type(chunks, "tool_result")
    assert result["status"] == "error"
    assert "vault_read" in result["result"]
    assert text_of(chunks) == "Sorry."


async def test_a_small_window(client: Client, script: Script) -> None:
    """At 70 % of the model's window its approach is told: an event and a notice."""
    much = "The oak of Dodona spoke through its leaves. " * 200
    script.will(
        calls(Call("vault_write", {"path": "much.md", "content": much}), usage=(3000, 2500)),
        calls(Call("vault_read", {"path": "much.md"}), usage=(4000, 10)),
        says("Much.", usage=(7000, 10)),
    )
    async with client.events("context.approaching_limit") as events:
        chunks = await client.streamed("Write much.", model="smollm2")
        event = await events.next()
    assert event is not None
    assert event["payload"]["run_id"] == chunks[0]["run_id"]
    assert event["payload"]["limit_value"] == 8192
    (told,) = notices(chunks, "context_approaching_limit")
    assert (told["metadata"]["current_value"], told["metadata"]["limit_value"]) == (7010, 8192)


async def test_the_size_of_the_context(client: Client, script: Script) -> None:
    """It is told before the first word and after tools, against the model's window (seed 002)."""
    script.will(calls(Call("vault_read", {"path": "oak.md"})), says("Read."))
    chunks = await client.streamed("Read it.", model="smollm2")
    kinds = types(chunks)
    assert "context_update" in kinds[: kinds.index("tool_call")]
    sizes = of_type(chunks, "context_update")
    assert {each["max_context_tokens"] for each in sizes} == {8192}
    tokens = [each["context_tokens"] for each in sizes]
    assert len(tokens) > 1
    assert tokens == sorted(tokens)
