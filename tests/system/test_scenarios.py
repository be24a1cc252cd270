"""The ten scenarios of seed 002, over HTTP."""

from __future__ import annotations

from tests.system.client import Client, kept, notices, of_type, text_of, types
from tests.system.waiting import until
from tests.system.wire_model import Call, Script, calls, says


async def test_a_question_is_answered(client: Client, script: Script) -> None:
    """1. Content is streamed, the exchange is saved, and a done chunk comes last."""
    script.will(says("Forty", "-two."))
    chunks = await client.streamed("What is the answer?")
    assert text_of(chunks) == "Forty-two."
    assert types(chunks)[-1] == "done"
    done = chunks[-1]
    assert done["model_used"] == "test-model"
    assert done["tokens_used"] == 110
    assert done["run_id"] == chunks[0]["run_id"]
    assert done["context_id"]
    run = await client.run(done["run_id"])
    assert run["status"] == "succeeded"
    assert "What is the answer?" in run["question"]
    assert run["answer"] == "Forty-two."
    assert [message["role"] for message in run["messages"]] == ["user", "assistant"]


async def test_the_answer_in_one_piece(client: Client, script: Script) -> None:
    """1. POST /api/oracle gives one document, with the fields that the issue names."""
    script.will(says("Forty-two."))
    answer = await client.ask("What is the answer?")
    assert answer.keys() == {
        *("answer", "sources", "tool_calls", "tokens_used", "model_used"),
        *("context_id", "run_id", "context_tokens_remaining", "citations"),
        *("finish", "termination_reason", "marks"),
    }
    assert (answer["finish"], answer["termination_reason"]) == ("stop", "finished")
    assert answer["answer"] == "Forty-two."
    assert answer["sources"] == []
    assert answer["tool_calls"] == []
    assert answer["marks"] == []
    assert 0 < answer["context_tokens_remaining"] <= 16_000


async def test_one_tool(client: Client, script: Script) -> None:
    """2. A call is told, then its result, and the model answers with the result before it."""
    script.will(
        calls(Call("vault_search", {"query": "oak leaves"})),
        says("The oak spoke through its leaves."),
    )
    chunks = await client.streamed("How did the oak speak?")
    called, result = of_type(chunks, "tool_call"), of_type(chunks, "tool_result")
    assert [(each["name"], each["status"]) for each in called] == [("vault_search", "pending")]
    assert called[0]["arguments"]["query"] == "oak leaves"
    assert [(each["name"], each["status"]) for each in result] == [("vault_search", "success")]
    assert called[0]["id"] == result[0]["id"]
    assert "oak.md" in result[0]["result"]
    assert [each["path"] for each in of_type(chunks, "source")] == ["oak.md"]
    asked = script.asked[1]
    assert asked.messages[-1]["role"] == "tool"
    assert "spoke through its leaves" in asked.results[-1]
    assert text_of(chunks) == "The oak spoke through its leaves."


async def test_a_tool_in_the_whole_answer(client: Client, script: Script) -> None:
    """2. The document lists the calls with their results, and the sources."""
    script.will(calls(Call("vault_read", {"path": "oak.md"})), says("Through its leaves."))
    answer = await client.ask("How did the oak speak?")
    (called,) = answer["tool_calls"]
    assert called["name"] == "vault_read"
    assert called["arguments"]["path"] == "oak.md"
    assert called["status"] == "success"
    assert "spoke through its leaves" in called["result"]
    assert called["duration_ms"] >= 0
    assert [source["path"] for source in answer["sources"]] == ["oak.md"]


async def test_tools_at_once(client: Client, script: Script) -> None:
    """3. All calls of a turn are made, and their results come in the order of the calls."""
    paths = ("oak.md", "budgets.md", "travel/delphi.md")
    script.will(calls(*(Call("vault_read", {"path": path}) for path in paths)), says("Read."))
    chunks = await client.streamed("What is in the notes?")
    assert [each["arguments"]["path"] for each in of_type(chunks, "tool_call")] == list(paths)
    results = script.asked[1].results
    assert [path in result for path, result in zip(paths, results, strict=True)] == [True] * 3
    assert len(of_type(chunks, "tool_result")) == 3
    assert len(script.asked) == 2


async def test_a_long_answer_is_streamed(client: Client, script: Script) -> None:
    """4. Content arrives while the model still writes, and the context's size is told."""
    script.will(says(*(f"word{n} " for n in range(40)), hold=20))
    async with client.stream("Tell me much.") as chunks:
        await chunks.until("content", lambda chunk: "word19" in chunk["content"])
        assert not script.asked[0].finished
        script.release()
        seen = await chunks.rest()
    assert text_of(seen) == "".join(f"word{n} " for n in range(40))
    assert len(of_type(seen, "content")) > 1
    sizes = of_type(seen, "context_update")
    assert sizes
    for size in sizes:
        assert 0 < size["context_tokens"] < size["max_context_tokens"]
    seqs = [chunk["seq"] for chunk in seen]
    assert seqs == sorted(set(seqs))


async def test_too_many_turns(client: Client, script: Script) -> None:
    """5. With three turns: a warning at the second, the end after the third, all of it saved."""
    await client.set(max_iterations=3)
    script.will_by(
        lambda asked: (
            says("Part 3.")
            if "And now?" in asked.question
            else calls(
                Call("vault_search", {"query": f"oak {asked.round}"}),
                texts=(f"Part {asked.round}. ",),
            )
        )
    )
    chunks = await client.streamed("Search for ever.")
    (warning,) = notices(chunks, "limit_warning")
    assert warning["metadata"]["current_value"] == 2
    assert warning["metadata"]["limit_value"] == 3
    (reached,) = notices(chunks, "limit_reached")
    assert reached["system_message"]
    assert types(chunks)[-1] == "done"
    assert len(script.asked) == 3
    assert any("3" in hint for hint in script.asked[1].notices), "the model is told as well"
    run = await client.run(chunks[0]["run_id"])
    assert run["status"] == "succeeded"
    assert len(run["messages"][1]["tool_calls"]) == 3
    await client.ask("And now?")
    for part in ("Part 0.", "Part 1.", "Part 2."):
        assert part in str(script.asked[3].messages), "what was said before the end is kept"


async def test_too_many_tokens(client: Client, script: Script) -> None:
    """6. A warning at 80 % of the token budget, and at its end a run that ends gracefully."""
    await client.set(token_budget=1000)
    script.will_by(
        lambda asked: calls(
            Call("vault_search", {"query": f"oak {asked.round}"}),
            texts=(f"Part {asked.round}. ",),
            usage=(380, 40),
        )
    )
    chunks = await client.streamed("Search for ever.")
    (warning,) = notices(chunks, "limit_warning")
    assert warning["metadata"]["current_value"] == 840
    assert warning["metadata"]["limit_value"] == 1000
    assert len(notices(chunks, "limit_reached")) == 1
    assert types(chunks)[-1] == "done"
    assert chunks[-1]["tokens_used"] == 1260
    assert len(script.asked) == 3


async def test_max_tokens_of_a_question(client: Client, script: Script) -> None:
    """6. max_tokens caps the output of the run: the model is asked for no more than is left."""
    script.will(
        calls(Call("vault_list"), usage=(50, 60)),
        says("Cut here", finish="length", usage=(50, 40)),
    )
    chunks = await client.streamed("Be long.", max_tokens=100)
    assert [asked.json["max_tokens"] for asked in script.asked] == [100, 40]
    assert types(chunks)[-1] in ("done", "error")
    run = await client.run(chunks[0]["run_id"])
    assert "Cut here" in str(run["messages"])


async def test_a_loop_is_noticed(client: Client, script: Script) -> None:
    """7. The same call three times: an event, a system chunk, and a notice in the next request."""
    looping = [calls(Call("vault_search", {"query": "oak", "limit": n})) for n in (1, 2, 3)]
    script.will(*looping, says("I stop."))
    async with client.events("agent.loop.detected") as events:
        chunks = await client.streamed("Go in circles.")
        event = await events.next()
    assert event is not None
    assert event["type"] == "agent.loop.detected"
    (told,) = of_type(chunks, "system")
    assert "vault_search" in told["system_message"]
    assert script.asked[2].notices == []
    assert script.asked[3].notices == [told["system_message"]]
    assert text_of(chunks) == "I stop."


async def test_cancelled_in_mid_stream(client: Client, script: Script) -> None:
    """8. The model's connection is closed, an error chunk says so, and what came is saved."""
    script.will(says("This much. ", "And this.", hold=1))
    async with client.stream("Be long.") as chunks:
        await chunks.until("content")
        cancelled = await client.cancel(run_id=chunks.run_id)
        assert cancelled.status == 200
        seen = await chunks.rest()
    await until(lambda: script.asked[0].left, "the end of the connection to the model")
    assert types(seen)[-1] == "error"
    assert seen[-1]["error"]["code"] == "cancelled"
    run = await client.run(chunks.run_id)
    assert run["status"] == "cancelled"
    assert "This much." in run["messages"][1]["content"]
    assert "And this." not in str(run["messages"])


async def test_events_are_emitted(client: Client, script: Script) -> None:
    """9. QUERY_START, TOOL_CALL_SUCCESS and SESSION_END reach whoever listens, in that order."""
    script.will(calls(Call("vault_list")), says("Three notes."))
    wanted = ["query.start", "tool.call.success", "session.end"]
    async with client.events(*wanted) as events:
        answer = await client.ask("Which notes are there?")
        got = [await events.next() for _ in wanted]
    assert [event["type"] for event in got if event] == wanted
    for event in got:
        assert event is not None
        assert event["payload"]["run_id"] == answer["run_id"]
        assert event["payload"]["project_id"] == client.project


async def test_a_context_goes_on(client: Client, script: Script) -> None:
    """10. A second question with the first one's context_id has the first exchange before it."""
    script.will(says("Forty-two."))
    first = await client.ask("What is the answer?")
    second = await client.ask("And the question?", context_id=first["context_id"])
    said = script.asked[1].said
    assert [message["role"] for message in said] == ["user", "assistant", "user"]
    assert "What is the answer?" in said[0]["content"]
    assert said[1]["content"] == "Forty-two."
    assert "And the question?" in said[2]["content"]
    assert second["context_id"] != first["context_id"]


async def test_a_call_written_as_text(client: Client, script: Script) -> None:
    """A call in the text of an answer is made, and is not shown as content."""
    written = '<tool_call>{"name": "vault_read", "arguments": {"path": "oak.md"}}</tool_call>'
    script.will(says(written), says("Through its leaves."))
    chunks = await client.streamed("How did the oak speak?")
    assert [each["name"] for each in of_type(chunks, "tool_call")] == ["vault_read"]
    assert text_of(chunks) == "Through its leaves."
    assert "spoke through its leaves" in script.asked[1].results[-1]


async def test_an_answer_that_was_cut_begins_anew(client: Client, script: Script) -> None:
    """A stream that breaks is asked for again; `restart` takes back what was shown of it."""
    script.will_in_turn(says("Half an ans", end="cut"), says("The whole answer."))
    chunks = await client.streamed("What is the answer?")
    assert text_of(chunks) == "The whole answer."
    assert types(chunks)[-1] == "done"
    assert len(script.asked) == 2
    if "Half" in str(of_type(chunks, "content")):
        assert of_type(chunks, "restart")
    assert "Half" not in str(kept(chunks))
