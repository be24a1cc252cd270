"""A run has one number of tokens: what the meter has settled for it, wherever it is shown."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from tests.system.client import Client
from tests.system.test_librarian import is_librarian
from tests.system.tokens import dodona
from tests.system.wire_model import Asked, Call, Reply, Script, WireModel, calls, says

RUN = 100 + 10 + 300 + 40 + 500 + 60 + 700 + 80  # two calls of the agent, two of the Librarian


def delegating(script: Script) -> Any:
    """A model that lists notes, and whose Librarian does so too."""
    listing = Call("vault_list", {})

    def answers(asked: Asked) -> Reply:
        if is_librarian(asked):
            if asked.round == 0:
                return calls(listing, usage=(300, 40))
            return says("Listed.", usage=(500, 60))
        if asked.round == 0:
            task = Call("delegate_librarian", {"task": f"List the notes. {script.tag}"})
            return calls(listing, task, usage=(100, 10))
        return says("It is done.", usage=(700, 80))

    return answers


async def told(client: Client, *words: str) -> Any:
    """What a command prints as JSON."""
    return json.loads(await asyncio.to_thread(dodona, client.up.home, *words, "--json"))


async def used(client: Client) -> int:
    total = (await client.get("/api/usage"))["total"]
    assert (await told(client, "usage"))["total"] == total
    return total["input_tokens"] + total["output_tokens"]


async def shown(client: Client, run_id: int) -> set[int]:
    """The tokens of a run in every place that lists it."""
    listed = [*(await client.runs()), *(await told(client, "run", "list"))["runs"]]
    tree = (await client.get("/api/oracle/tree"))["nodes"]
    nodes = [node for node in tree if node["id"] == run_id]
    return {
        *(run["tokens"] for run in listed if run["id"] == run_id),
        *(node["tokens"] for node in nodes),
        (await client.run(run_id))["tokens"],
        (await told(client, "run", "show", str(run_id)))["tokens"],
    }


async def test_every_place_shows_the_same_tokens(own: Client, script: Script) -> None:
    """With tools and a subagent: the answer, the stream, runs, usage, sessions and `/v1`."""
    await own.up.begin()
    script.will_by(delegating(script))
    answered = await own.ask("What is there?")
    assert answered["tokens_used"] == RUN
    assert await shown(own, answered["run_id"]) == {RUN}
    assert await used(own) == RUN

    chunks = await own.streamed("And now?")
    assert chunks[-1]["tokens_used"] == RUN
    by_command = await told(own, "ask", own.question("Again?")["question"])
    assert by_command["tokens_used"] == RUN
    assert await used(own) == 3 * RUN

    question = own.question("What is there?")["question"]
    body = {"model": "oracle", "user": "ada", "messages": [{"role": "user", "content": question}]}
    completion = (await own.send("POST", "/v1/chat/completions", body)).json
    assert completion["usage"]["total_tokens"] == RUN
    (session,) = (await own.get("/api/sessions"))["sessions"]
    assert sum(session["token_usage"].values()) == RUN
    assert await used(own) == 4 * RUN


async def test_tokens_of_a_failed_attempt_count_everywhere(
    own: Client, script: Script, wire: WireModel
) -> None:
    """The provider has billed it, so it is a part of the run's number."""
    await own.up.begin()
    script.will_in_turn(says("Half an ans", end="cut"), says("Whole.", usage=(70, 7)))
    answered = await own.ask("Why?")
    assert answered["tokens_used"] > 77
    assert await shown(own, answered["run_id"]) == {answered["tokens_used"]}
    assert await used(own) == answered["tokens_used"]


async def test_without_a_model_no_tokens_are_used(own: Client) -> None:
    """The extractive model counts zero everywhere, and no token budget refuses it."""
    own.up.home.config.write_text(
        f'[agent]\nprovider = "extractive"\n[vault]\npath = "{own.up.home.vault}"\n'
        f'[store]\nurl = "{own.up.home.store}"\n[budgets]\ndaily = 0\nsession = 0\n'
    )
    await own.up.begin()
    question = own.question("") | {"question": "What did the oak say?"}
    answered = (await own.send("POST", "/api/oracle", question)).json
    assert "leaves" in answered["answer"]
    assert answered["tokens_used"] == 0
    assert await shown(own, answered["run_id"]) == {0}
    assert await used(own) == 0
