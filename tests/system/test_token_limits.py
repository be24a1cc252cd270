"""Tokens with agents, models and a budget of their own, through every way into a real gateway."""

from __future__ import annotations

from typing import Any

import pytest

from tests.gateway.speaking import Refused, speaking
from tests.system.client import Client
from tests.system.tokens import User
from tests.system.wire_model import MODEL, Script, WireModel, says

GARDENER = """
[agents.gardener]
provider = "openai-compatible"
base_url = "{url}"
model = "garden-model"

[agents.gardener.fallback]
provider = "openai-compatible"
base_url = "{url}"
model = "spare-model"

[[bindings]]
agent_id = "gardener"
channel = "slack"
"""


def question(own: Client, **more: Any) -> dict[str, Any]:
    return {"question": f"Why? {own.tag}", **more}


def completion(own: Client, model: str, **more: Any) -> dict[str, Any]:
    message = {"role": "user", "content": f"Why? {own.tag}"}
    return {"model": model, "messages": [message], **more}


async def start(own: Client, wire: WireModel) -> None:
    own.up.home.write(base_url=wire.url, more=GARDENER.format(url=wire.url))
    await own.up.begin()


async def test_another_agent_is_refused(own: Client, script: Script, wire: WireModel) -> None:
    """With 403, over HTTP, /v1 and WebSocket, also if a binding selects the agent."""
    await start(own, wire)
    script.will(says("Yes."))
    ada = await User.made(own, "ada", "chat", "--agent", "gardener")
    tool = {"type": "function", "function": {"name": "look"}}
    for path, body in (
        ("/api/oracle", question(own)),
        ("/api/oracle/stream", question(own)),
        ("/v1/chat/completions", completion(own, "oracle")),
        ("/v1/chat/completions", completion(own, "oracle", tools=[tool])),
    ):
        refused = await ada.send("POST", path, body)
        assert (refused.status, path in refused.text) == (403, False), refused.text
        assert "this token may not use the agent 'oracle'" in refused.text
    assert (await ada.send("GET", "/v1/models/oracle")).status == 403
    models = await ada.does("GET", "/v1/models")
    assert [each["id"] for each in models["data"]] == ["gardener"]
    assert not script.asked
    await ada.does("POST", "/v1/chat/completions", completion(own, "gardener"))
    async with speaking(own.session, own.url, headers=ada.headers) as speaker:
        assert (await speaker.call("status"))["agents"] == ["gardener"]
        who = {"account": "ada", "content": f"Why? {own.tag}", "wait": True}
        with pytest.raises(Refused, match="may not use the agent 'oracle'"):
            await speaker.call("chat.send", channel="web", **who)
        assert (await speaker.call("chat.send", channel="slack", **who))["answer"] == "Yes."
    everything = await User.made(own, "ada", "chat")
    async with speaking(own.session, own.url, headers=everything.headers) as speaker:
        sent = await speaker.call("chat.send", channel="web", **who)
    found = (await ada.does("GET", "/api/sessions"))["sessions"]
    assert {each["agent_id"] for each in found} == {"gardener"}
    key = sent["session_key"]
    assert (await ada.send("GET", "/api/sessions/history", None, key=key)).status == 403
    assert (await ada.send("POST", "/api/sessions/clear", {"key": key})).status == 403
    assert (await everything.send("POST", "/api/sessions/clear", {"key": key})).status == 200


async def test_another_model_is_not_called(own: Client, script: Script, wire: WireModel) -> None:
    """Not when a request names it, nor as an agent's configured one: that is skipped."""
    await start(own, wire)
    script.will_by(lambda asked: says(f"from {asked.json['model']}"))
    bob = await User.made(own, "bob", "chat", "--model", "spare-model")
    for path, body in (
        ("/api/oracle", question(own, model=MODEL)),
        ("/api/oracle", question(own)),
        ("/v1/chat/completions", completion(own, "gardener/garden-model")),
    ):
        refused = await bob.send("POST", path, body)
        assert refused.status == 403, refused.text
        assert "this token may not use the model" in refused.text
    assert not script.asked
    answered = await bob.does("POST", "/v1/chat/completions", completion(own, "gardener"))
    assert answered["choices"][0]["message"]["content"] == "from spare-model"
    assert {asked.json["model"] for asked in script.asked} == {"spare-model"}


async def test_a_budget_survives_a_crash(own: Client, script: Script, wire: WireModel) -> None:
    """Killed during the call: the token pays for what was cut, and for the call that replaces it.

    Its bearer sees that, over HTTP and WebSocket; another token of the same user has no budget.
    """
    await start(own, wire)
    script.will_in_turn(says("Half of ", "it.", hold=1), says("Yes.", usage=(70, 7)))
    eve = await User.made(own, "eve", "chat", "--budget-tokens", "50000", "--period", "day")
    other = await User.made(own, "eve", "chat")
    who = {"channel": "slack", "account": "eve", "content": f"Why? {own.tag}"}
    async with speaking(own.session, own.url, headers=eve.headers) as speaker:
        sent = await speaker.call("chat.send", **who)
        await script.reached(1)
        await own.up.begin_again()
    async with speaking(own.session, own.url, headers=eve.headers) as speaker:
        await speaker.call("chat.events", run_id=sent["run_id"])
        assert (await speaker.events_of(sent["run_id"]))[-1]["event"] == "done"
        (shown,) = (await speaker.call("budget.status"))["budgets"]
    (budget,) = (await eve.does("GET", "/api/budgets"))["budgets"]
    assert budget == shown
    assert (budget["scope"], budget["kind"], budget["unit"]) == (
        f"token:{eve.number}",
        "token",
        "tokens",
    )
    calls = own.up.home.rows("SELECT input_tokens, output_tokens FROM token_records")
    assert len(calls) == 2
    assert budget["used"] == sum(sum(call.values()) for call in calls)
    assert (budget["held"], budget["ceiling"]) == (0, 50_000)
    assert (await other.does("GET", "/api/budgets"))["budgets"] == []
