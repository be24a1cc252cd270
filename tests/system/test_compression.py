"""Older exchanges make room over HTTP: nobody waits for it, nothing that counts is lost."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.system.client import Client
from tests.system.waiting import until, until_found
from tests.system.wire_model import Answers, Asked, Call, Reply, Script, calls, says

PLANTED = 20
EXCHANGES = 200
LONG = "The oak has leaves and acorns and much more than that to speak of. " * 40
CROWD = 6  # exchanges of that length: more than a small context has room for


def summing(summary: str) -> Answers:
    return lambda _: says(json.dumps({"summary": summary}))


async def compressed(client: Client, times: int) -> dict[str, Any]:
    async def find() -> dict[str, Any] | None:
        context = await client.context()
        return context if context["compression_count"] >= times else None

    return await until_found(find, f"compression number {times}")  # type: ignore[return-value]


async def small(own: Client) -> None:
    """A gateway whose contexts hold little."""
    config = own.up.home.config
    config.write_text(f"{config.read_text()}[context]\ntoken_budget = 4000\n")
    await own.up.begin()


async def test_the_next_question_is_answered_from_the_summary(own: Client, script: Script) -> None:
    """Near the budget older exchanges become a summary; they themselves stay in the tree."""
    await small(own)
    script.will(says(LONG))
    script.will_sum_up(summing("They spoke of the oak in the garden."))
    async with own.events("context.compressed") as events:
        for number in range(CROWD):
            await own.ask(f"Question {number}?")
        event = await events.next()
    assert event is not None
    assert event["payload"]["tokens_after"] < event["payload"]["tokens_before"]
    context = await compressed(own, 1)
    assert "They spoke of the oak in the garden." in context["compressed_summary"]
    await own.ask("What was said?")
    context = await own.context()
    assert context["tokens_used"] < context["token_budget"]
    sent = str(script.asked[-1].messages)
    assert "They spoke of the oak in the garden." in sent
    assert "Question 0?" not in sent
    assert "Question 5?" in sent, "recent exchanges stay as they are"
    tree = await own.get("/api/oracle/tree")
    assert len(tree["nodes"]) == CROWD + 1
    assert [node["has_summary"] for node in tree["nodes"]].count(True) >= 1
    first = await own.run(tree["nodes"][-1]["id"])
    said = [message["content"].strip() for message in first["messages"]]
    assert said == [f"Question 0? {own.tag}", LONG.strip()]


async def test_nobody_waits_for_it(own: Client, script: Script) -> None:
    """While a summary hangs, questions are answered, within what fits; with it, from it."""
    await small(own)
    script.will(says(LONG))
    script.will_sum_up(lambda _: says('{"summary": "They spoke of the oak."}', hold=0))
    for number in range(CROWD):
        await own.ask(f"Question {number}?")
    await until(lambda: script.summing, "a model that is asked to sum up")
    for number in range(CROWD, CROWD + 3):
        assert (await own.ask(f"Question {number}?"))["answer"].startswith("The oak has")
    assert (await own.context())["compression_count"] == 0
    assert len(script.summing) == 1, "one at a time"
    script.release()
    await compressed(own, 1)

    async def heard() -> bool:
        """Not at once if what was said meanwhile fills the context by itself."""
        await own.ask("And now?")
        return "They spoke of the oak." in str(script.asked[-1].messages)

    await until_found(heard, "a question with the summary before it")


async def test_killed_while_it_is_summed_up(own: Client, script: Script) -> None:
    """With -9: the conversation goes on, and is summed up after the next answer."""
    await small(own)
    script.will(says(LONG))
    script.will_sum_up(lambda _: says("Never", end="hang"))
    for number in range(CROWD):
        await own.ask(f"Question {number}?")
    await until(lambda: script.summing, "a model that is asked to sum up")
    await own.up.begin_again()
    script.will_sum_up(summing("They spoke of the oak."))
    await own.ask("And now?")
    context = await compressed(own, 1)
    assert context["compression_count"] == 1
    assert len((await own.get("/api/oracle/tree"))["nodes"]) == CROWD + 1


def decision(n: int) -> str:
    return f"We decided to plant oak number {n} in the garden."


def planting(asked: Asked) -> Reply:
    """Of a decision it says with which symbols it is carried out."""
    question = asked.question.removesuffix(" ")
    if not question.startswith("We decided"):
        return says("It stands by the wall and has leaves.")
    number = question.split("number ")[1].split()[0]
    return says(f"Noted. `OakTree{number}` is made by plant_oak_{number}.")


@pytest.mark.parametrize("has_model", [True, False])
async def test_what_was_planted_survives(own: Client, script: Script, *, has_model: bool) -> None:
    """Twenty decisions and symbols in 200 exchanges: the model still has them at the end."""
    await own.up.begin()
    script.will_by(planting)
    if has_model:
        script.will_sum_up(summing("They talked about trees."))
    every = EXCHANGES // PLANTED
    for n in range(EXCHANGES):
        text = f"What about tree {n}?" if n % every else decision(n // every)
        await own.ask(text)
    context = await compressed(own, 3)
    await own.ask("What did we decide?")
    sent = str(script.asked[-1].messages)
    for n in range(PLANTED):
        assert decision(n) in sent
        assert f"OakTree{n}" in sent
        assert f"plant_oak_{n}" in sent
        assert decision(n) in context["key_decisions"]
    assert "What about tree 1?" not in sent, "it is not that all of it was sent"
    assert ("They talked about trees." in sent) is has_model


async def test_what_an_exchange_leaves(client: Client, script: Script) -> None:
    """Its insight, names and decisions are there with the answer, from calls and text."""
    script.will(
        calls(Call("vault_read", {"path": "oak.md"})),
        says("Sure! `OakTree` speaks through its leaves, as oak.md says."),
    )
    await client.ask("We will keep the oak. How does it speak?")
    context = await client.context()
    assert context["key_decisions"] == ["We will keep the oak."]
    assert "OakTree" in context["mentioned_symbols"]
    assert "oak.md" in context["mentioned_files"]
    _, answer = context["recent_exchanges"]
    assert answer["key_insight"] == "`OakTree` speaks through its leaves, as oak.md says."
