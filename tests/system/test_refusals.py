"""What cannot be done is refused in words that help, and nothing that was there is lost."""

from __future__ import annotations

from typing import Any

import pytest

from tests.system.client import Client, text_of, types
from tests.system.wire_model import Reply, Script, WireModel, refuses, says


async def test_an_unknown_model(client: Client, script: Script) -> None:
    """The error names the model; the exchange is there, and the next question is answered."""
    unknown = refuses(404, "The model `no-such-model` does not exist")
    script.will_by(
        lambda asked: unknown if asked.json["model"] == "no-such-model" else says("Here.")
    )
    answered = await client.try_to_ask("Who is there?", model="no-such-model")
    assert answered.status == 502
    assert answered.error["code"] == "provider_failed"
    assert "no-such-model" in answered.error["message"] + answered.error["hint"]
    (run,) = await client.runs()
    assert run["status"] == "failed"
    assert len((await client.run(run["id"]))["messages"]) == 2
    assert (await client.ask("And now?"))["answer"] == "Here."
    assert script.asked[0].json["model"] == "no-such-model"


async def test_an_unknown_model_in_a_stream(client: Client, script: Script) -> None:
    """The stream ends with an error chunk in the one shape of errors."""
    script.will(refuses(404, "The model `no-such-model` does not exist"))
    chunks = await client.streamed("Who is there?", model="no-such-model")
    assert types(chunks).count("error") == 1
    assert types(chunks)[-1] == "error"
    assert {"code", "message", "hint"} <= chunks[-1]["error"].keys()
    assert chunks[-1]["error"]["code"] == "provider_failed"


async def test_an_unreachable_provider(own: Client) -> None:
    """It starts all the same; a question fails with the address to look at, and is kept."""
    own.up.home.write(base_url="http://127.0.0.1:9/v1")  # nobody listens on the port of discard
    await own.up.begin()
    assert (await own.send("GET", "/healthz")).status == 200
    answered = await own.try_to_ask("Is anybody there?")
    assert answered.status == 502
    assert answered.error["code"] == "provider_failed"
    assert "cannot be reached" in answered.error["message"]
    (run,) = await own.runs()
    assert run["status"] == "failed"
    messages = (await own.run(run["id"]))["messages"]
    assert "Is anybody there?" in messages[0]["content"]


@pytest.mark.parametrize(
    "reply",
    [refuses(500, "out of order"), refuses(429, "slow down", **{"Retry-After": "0"})],
    ids=["500", "429"],
)
async def test_a_provider_that_recovers(client: Client, script: Script, reply: Reply) -> None:
    """A fault that passes is not the user's business."""
    script.will_in_turn(reply, says("Here."))
    chunks = await client.streamed("Who is there?")
    assert text_of(chunks) == "Here."
    assert types(chunks)[-1] == "done"
    assert len(script.asked) == 2


async def test_a_provider_that_does_not(client: Client, script: Script) -> None:
    """After some tries the run fails with what the provider said."""
    script.will(refuses(500, "out of order"))
    answered = await client.try_to_ask("Who is there?")
    assert answered.status == 502
    assert "out of order" in answered.error["message"]
    assert len(script.asked) == 3


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"max_iterations": 0}, ("max_iterations", "1", "50")),
        ({"max_iterations": 51}, ("max_iterations", "1", "50")),
        ({"soft_warning_percent": 91}, ("soft_warning_percent", "50", "90")),
        ({"token_budget": 999}, ("token_budget", "1000", "200000")),
        ({"token_warning_percent": 96}, ("token_warning_percent", "50", "95")),
        ({"timeout_seconds": 9}, ("timeout_seconds", "10", "600")),
        ({"max_tool_calls_per_turn": 21}, ("max_tool_calls_per_turn", "1", "20")),
        ({"max_parallel_tools": 11}, ("max_parallel_tools", "1", "10")),
        ({"max_iterations": "many"}, ("max_iterations", "many")),
        ({"max_iteration": 5}, ("max_iteration", "max_iterations")),
        ({"thinking_enabled": "yes"}, ("thinking_enabled",)),
        ({"max_iterations": True}, ("max_iterations",)),
    ],
)
async def test_settings_out_of_bounds(
    client: Client, values: dict[str, Any], words: tuple[str, ...]
) -> None:
    """They are refused with the bounds, and what was set before stays."""
    before = await client.get("/api/settings")
    answered = await client.send("PATCH", "/api/settings", values)
    assert answered.status == 400
    assert answered.error["code"] == "bad_request"
    said = answered.text.replace(",", "")
    for word in words:
        assert word in said
    assert await client.get("/api/settings") == before


async def test_all_mistakes_at_once(client: Client) -> None:
    """Several mistakes are told together, and the right value beside them is not taken."""
    before = await client.get("/api/settings")
    answered = await client.send(
        "PATCH",
        "/api/settings",
        {"max_iterations": 0, "timeout_seconds": 1, "max_parallel_tools": 2},
    )
    assert answered.status == 400
    problems = [problem["message"] for problem in answered.error["problems"]]
    assert any("max_iterations" in problem for problem in problems)
    assert any("timeout_seconds" in problem for problem in problems)
    assert await client.get("/api/settings") == before


@pytest.mark.parametrize(
    ("values", "status", "word"),
    [
        ({"question": ""}, 400, "10,000"),
        ({"question": "   "}, 400, "10,000"),
        ({"question": "x" * 10_001}, 400, "10,000"),
        ({"question": 7}, 400, "question"),
        ({"max_tokens": 0}, 400, "max_tokens"),
        ({"sources": ["vaults"]}, 400, "vault"),
        ({"questions": "x"}, 400, "question"),
        ({"project_id": "no-such-project"}, 404, "no-such-project"),
        ({"context_id": "node-999999999"}, 404, ""),
        ({"context_id": "nonsense"}, 404, "nonsense"),
    ],
)
async def test_questions_that_make_no_sense(
    client: Client, script: Script, values: dict[str, Any], status: int, word: str
) -> None:
    """They are refused before anything is kept or asked, in a stream as in one piece."""
    question = {**client.question("What?"), **values}
    for path in ("/api/oracle", "/api/oracle/stream"):
        answered = await client.send("POST", path, question)
        assert answered.status == status, answered.text
        assert word in answered.text
        assert {"code", "message", "hint"} <= answered.error.keys()
    assert script.asked == []
    assert await client.runs() == []


async def test_the_longest_question(client: Client, script: Script) -> None:
    """10,000 characters are a question, whatever they are."""
    script.will(says("Long."))
    room = 10_000 - len(client.tag) - 1
    assert (await client.ask("ü" * room))["answer"] == "Long."
    assert "ü" * room in script.asked[0].question


async def test_another_projects_node(client: Client, script: Script) -> None:
    """A context_id of another project's conversation is not to be had here."""
    script.will(says("Answered."))
    other = client.in_project(f"{client.project}-b")
    await other.make_project()
    theirs = await other.ask("Theirs?")
    await client.ask("Ours?")
    answered = await client.try_to_ask("Both?", context_id=theirs["context_id"])
    assert answered.status in (400, 404)
    assert len(script.asked) == 2


@pytest.mark.parametrize("path", ["/api/runs/999999999", "/api/runs/999999999/events"])
async def test_an_unknown_run(client: Client, path: str) -> None:
    """A run that is not there, or is another's, is not found."""
    answered = await client.send("GET", path)
    assert answered.status == 404
    assert answered.error["code"] == "not_found"


async def test_a_refused_key_is_not_retried(client: Client, script: Script) -> None:
    """A fault that lasts is told at once."""
    script.will(refuses(401, "Incorrect API key provided"))
    answered = await client.try_to_ask("Who is there?")
    assert answered.status == 502
    assert "key" in answered.text
    assert len(script.asked) == 1


async def test_a_spent_budget(own: Client, wire: WireModel, script: Script) -> None:
    """A call that could pass a ceiling is not made: 429, and the question is kept."""
    own.up.home.write(base_url=wire.url, more="[budgets.daily]\ntokens = 6000")
    await own.up.begin()
    script.will(says("Here.", usage=(2000, 3000)))
    assert (await own.ask("Who?", max_tokens=100))["answer"] == "Here."
    answered = await own.try_to_ask("Who now?")
    assert answered.status == 429
    assert answered.error["code"] == "budget_exceeded"
    assert len(script.asked) == 1
    assert [run["status"] for run in await own.runs()] == ["failed", "succeeded"]
    spent = own.up.home.rows("SELECT used, held FROM budgets WHERE unit = 'tokens'")
    assert [(row["used"], row["held"]) for row in spent] == [(5000, 0)]
