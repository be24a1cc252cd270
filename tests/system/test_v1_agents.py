"""Several agents behind /v1: each answers as itself, in sessions and lanes of its own."""

from __future__ import annotations

import asyncio
from typing import Any

import openai
from openai import AsyncOpenAI

from tests.system.client import Client
from tests.system.test_v1 import SEARCH, body, spoken
from tests.system.waiting import until
from tests.system.wire_model import MODEL, Script, WireModel, says

AGENTS = """
[agents.gardener]
provider = "openai-compatible"
base_url = "{url}"
model = "garden-model"
soul_path = "soul.md"
system_prompt = "You are a gardener."
queue_limit = 1
"""


async def test_agents_answer_as_themselves(own: Client, script: Script, wire: WireModel) -> None:
    """By their own model, with their soul; one that has too much to do says so, and others not."""
    (own.up.home.folder / "soul.md").write_text("Roots before leaves.\n")
    own.up.home.write(base_url=wire.url, more=AGENTS.format(url=wire.url))
    await own.up.begin()
    async with AsyncOpenAI(base_url=f"{own.url}/v1", api_key="none", max_retries=0) as ai:
        create: Any = ai.chat.completions.create
        assert [model.id async for model in ai.models.list()] == ["oracle", "gardener"]
        await _by_model(own, script, create)
        await _relayed(own, script, create)
        await _crowded(own, script, create)


async def _by_model(own: Client, script: Script, create: Any) -> None:
    """In parallel, each in its own session, though the user's name is the same."""
    script.will_by(lambda asked: says(f"from {asked.json['model']}"))
    names = ("oracle", "gardener")
    told = await asyncio.gather(
        *(create(**{**body(own, name, user="ada"), "model": name}) for name in names)
    )
    texts = [answered.choices[0].message.content for answered in told]
    assert texts == [f"from {MODEL}", "from garden-model"]
    assert all(len(spoken(asked)) == 1 for asked in script.asked)
    (gardener,) = [each for each in script.asked if each.json["model"] == "garden-model"]
    assert gardener.messages[0]["content"] == "Roots before leaves.\n\nYou are a gardener."


async def _relayed(own: Client, script: Script, create: Any) -> None:
    """Its soul and its prompt precede what the client says, also what that says as the system."""
    asked = body(own, tools=[SEARCH])
    asked["messages"].insert(0, {"role": "system", "content": "Be brief."})
    await create(**{**asked, "model": "gardener"})
    said = [(each["role"], each["content"]) for each in script.asked[-1].messages]
    assert said[:2] == [
        ("system", "Roots before leaves.\n\nYou are a gardener."),
        ("system", "Be brief."),
    ]


async def _crowded(own: Client, script: Script, create: Any) -> None:
    """More than the queue takes is a 429 that may be tried again; another session is free."""
    script.will_by(lambda asked: says("Yes.", hold=None if "busy" not in asked.question else 0))
    busy = {**body(own, "busy", user="ada"), "model": "gardener"}
    before = len(script.asked)
    first = asyncio.create_task(create(**busy))
    await until(lambda: len(script.asked) > before, "the first question at the model")
    waiting = [asyncio.create_task(create(**busy)) for _ in range(3)]
    done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    refused = [task.exception() for task in done]
    assert all(isinstance(error, openai.RateLimitError) for error in refused)
    assert {error.code for error in refused if isinstance(error, openai.APIError)} == {"queue_full"}
    for error in refused:
        assert isinstance(error, openai.APIStatusError)
        assert "x-should-retry" not in error.response.headers
    free = await create(**{**body(own, "free", user="bob"), "model": "gardener"})
    assert free.choices[0].message.content == "Yes."
    script.release()
    assert (await first).choices[0].message.content == "Yes."
    await asyncio.gather(*waiting, return_exceptions=True)
