"""Providers that are down: another one answers, and when none does, nothing is lost."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from tests.gateway.speaking import speaking
from tests.system.client import Client
from tests.system.wire_model import Script, refuses, says

FALLBACK = """
[agent.fallback]
provider = "openai-compatible"
base_url = "{url}"
model = "second-model"
"""
WHO = {"channel": "chat", "account": "acme", "peer": "bob"}


@pytest.fixture
async def gateway(own: Client, wire: Any) -> Client:
    """Its first provider is at a port where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        nobody = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
    own.up.home.write(base_url=nobody, agent=FALLBACK.format(url=wire.url))
    await own.up.begin()
    return own


async def usage(client: Client) -> dict[str, int]:
    told = await client.get("/api/usage?by=model")
    return {each["model"]: each["calls"] for each in told["usage"]}


async def test_when_one_is_down_another_answers(gateway: Client, script: Script) -> None:
    """And the books say who did; when both are, that is told, and the session goes on after it."""
    script.will_in_turn(says("From the second."))
    async with speaking(gateway.session, gateway.url) as speaker:

        async def send(text: str) -> list[dict[str, Any]]:
            sent = await speaker.call("chat.send", **WHO, content=f"{text} {gateway.tag}")
            return await speaker.events_of(sent["run_id"])

        events = await send("One?")
        assert [e["data"]["content"] for e in events if e["event"] == "text"] == [
            "From the second."
        ]
        assert events[-1]["data"]["model_used"] == "second-model"
        assert await usage(gateway) == {"second-model": 1}

        script.will(refuses(400, "out of order"))
        last = (await send("Two?"))[-1]
        assert last["event"] == "error"
        assert last["data"]["error"]["code"] == "provider_failed"
        assert "out of order" in last["data"]["error"]["message"]

        script.will(says("Here again."))
        assert (await send("Three?"))[-1]["event"] == "done"
        history = await speaker.call("chat.history", session_key="oracle:chat:acme:bob")
    said = [(each["role"], each["content"].partition(" [")[0]) for each in history["messages"]]
    assert [each for each in said if each[0] == "user"] == [
        ("user", "One?"),
        ("user", "Two?"),
        ("user", "Three?"),
    ]
    assert said[1] == ("assistant", "From the second.")
    assert said[5] == ("assistant", "Here again.")
    # What was not answered is known to the model, and so is that it was not.
    texts = [each["content"] for each in script.asked[-1].messages if each["role"] == "user"]
    assert any("Two?" in text for text in texts)
