"""Channels through `/ws` of a gateway as people start it: agents, sessions, order, restarts."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from contextlib import AsyncExitStack
from typing import Any

import aiohttp
import pytest

from dodona.core.domain.conversations.sessions import session_key
from tests.gateway.speaking import Refused, Speaker, speaking
from tests.system.client import Client
from tests.system.tokens import User, dodona
from tests.system.waiting import LIMIT, until, until_found
from tests.system.wire_model import Asked, Reply, Script, says

WORK = """
[agents.work]
provider = "openai-compatible"
base_url = "{url}"
model = "work-model"
"""
BINDINGS = """
[[bindings]]
agent_id = "work"
channel = "slack"

[[bindings]]
agent_id = "home"
channel = "slack"
peer_id = "U-boss"

[[bindings]]
agent_id = "work"
guild_id = "guild-7"

[[bindings]]
agent_id = "home"
channel = "discord"

[[bindings]]
agent_id = "work"
channel = "telegram"
account_id = "office-bot"
"""

# channel, account, peer, guild → the agent that must answer
SENDERS: tuple[tuple[dict[str, str], str], ...] = (
    ({"channel": "slack", "account": "acme", "peer": "U-one"}, "work"),
    ({"channel": "slack", "account": "acme", "peer": "U-boss"}, "home"),
    ({"channel": "slack", "account": "acme"}, "work"),
    ({"channel": "discord", "account": "bot", "peer": "9"}, "home"),
    ({"channel": "discord", "account": "bot", "peer": "8", "guild": "guild-7"}, "work"),
    ({"channel": "telegram", "account": "office-bot", "peer": "1:2"}, "work"),
    ({"channel": "telegram", "account": "own-bot", "peer": "1:2"}, "home"),
)
EACH = 3  # messages
MODELS = {"work": "work-model", "home": "test-model"}


def echo(asked: Asked) -> Reply:
    """Who answers, and what."""
    return says(f"{asked.json['model']} heard: ", asked.question.partition(" ")[0])


@pytest.fixture
async def office(own: Client, wire: Any, script: Script) -> Client:
    """A gateway with two agents and five bindings."""
    own.up.home.write(
        base_url=wire.url, agent='id = "home"', more=WORK.format(url=wire.url) + BINDINGS
    )
    script.will_by(echo)
    await own.up.begin()
    return own


async def test_three_channels_two_agents_five_bindings(office: Client, script: Script) -> None:
    """All at once, each channel on a connection of its own: right agent, session and order."""
    channels = sorted({who["channel"] for who, _ in SENDERS})
    async with asyncio.TaskGroup() as group:
        for channel in channels:
            group.create_task(_speak(office, channel))
        for agent, model in MODELS.items():
            group.create_task(_complete(office, agent, model))
    async with speaking(office.session, office.url) as speaker:
        await _look_back(speaker)
    # What a session has said before goes along, so that is one at a time and in order.
    by_session: dict[str, list[str]] = defaultdict(list)
    for asked in script.asked:
        number = asked.question.partition(" ")[0]
        by_session[number.rpartition("-")[0]].append(number)
    assert len(by_session) == len(SENDERS) + len(MODELS)
    assert all(numbers == sorted(numbers) for numbers in by_session.values())


async def _speak(office: Client, channel: str) -> None:
    """All messages of a channel, without waiting for any answer; then all answers."""
    async with speaking(office.session, office.url) as speaker:
        ids: dict[int, tuple[str, str]] = {}
        for number in range(EACH):
            for place, (who, agent) in enumerate(SENDERS):
                if who["channel"] == channel:
                    text = f"s{place}-{number}"
                    id_ = await speaker.begin("chat.send", **who, content=f"{text} {office.tag}")
                    ids[id_] = (text, agent)
        for id_, (text, agent) in ids.items():
            sent = await speaker.answer(id_)
            assert sent["agent_id"] == agent
            events = await speaker.events_of(sent["run_id"])
            assert {event["session_key"] for event in events} == {sent["session_key"]}
            seqs = [event["seq"] for event in events]
            assert seqs == sorted(set(seqs))
            said = [event["data"]["content"] for event in events if event["event"] == "text"]
            assert "".join(said) == f"{MODELS[agent]} heard: {text}"


async def _complete(office: Client, agent: str, model: str) -> None:
    """The same by OpenAI's wire: the model names the agent, the user the session."""
    for number in range(EACH):
        text = f"{agent}-{number}"
        said = [{"role": "user", "content": f"{text} {office.tag}"}]
        asked = {"model": agent, "user": "U-one", "messages": said}
        answered = await office.send("POST", "/v1/chat/completions", asked)
        assert answered.json["choices"][0]["message"]["content"] == f"{model} heard: {text}"


async def _look_back(speaker: Speaker) -> None:
    sessions = (await speaker.call("session.list"))["sessions"]
    keys = {each["key"]: each for each in sessions}
    assert keys.keys() == {
        "work:slack:acme:U-one",
        "home:slack:acme:U-boss",
        "work:slack:acme:main",
        "home:discord:bot:9",
        "work:discord:bot:8",
        "work:telegram:office-bot:1%3A2",
        "home:telegram:own-bot:1%3A2",
        "work:v1:local:U-one",
        "home:v1:local:U-one",
    }
    for place, (who, agent) in enumerate(SENDERS):
        key = session_key(agent, who["channel"], who["account"], who.get("peer"))
        assert keys[key]["agent_id"] == agent
        history = (await speaker.call("chat.history", session_key=key))["messages"]
        told = str(history)
        places = [told.index(f"s{place}-{number} ") for number in range(EACH)]
        assert places == sorted(places)


async def test_a_message_acknowledged_is_answered_after_a_crash(
    office: Client, script: Script
) -> None:
    """Killed while it answers: the client comes back, and goes on where it was."""
    script.will_by(lambda asked: says("One, ", "two.", hold=1))
    who = {"channel": "slack", "account": "acme", "peer": "U-one"}
    async with speaking(office.session, office.url) as speaker:
        first = await speaker.call("chat.send", **who, content=f"count {office.tag}")
        second = await speaker.call("chat.send", **who, content=f"again {office.tag}")
        await speaker.event()
        await script.reached()
        await office.up.begin_again()
    script.release()
    async with speaking(office.session, office.url) as speaker:
        for sent in (first, second):
            told = await speaker.call("chat.events", run_id=sent["run_id"])
            assert told["session_key"] == "work:slack:acme:U-one"
            events = await speaker.events_of(sent["run_id"])
            assert events[-1]["event"] == "done"
    asked = [each.question.partition(" ")[0] for each in script.asked]
    assert asked == sorted(asked, reverse=True)  # count, count, again


async def test_a_run_can_be_cancelled_and_its_session_cleared(
    office: Client, script: Script
) -> None:
    script.will_by(lambda asked: says("One, ", "two.", hold=1))
    who = {"channel": "slack", "account": "acme"}
    async with speaking(office.session, office.url) as speaker:
        sent = await speaker.call("chat.send", **who, content=f"count {office.tag}")
        await script.reached()
        await speaker.call("chat.cancel", run_id=sent["run_id"])
        events = await speaker.events_of(sent["run_id"])
        assert events[-1]["data"]["error"]["code"] == "cancelled"
        key = sent["session_key"]
        assert (await speaker.call("chat.history", session_key=key))["messages"]
        await speaker.call("session.clear", session_key=key)
        assert (await speaker.call("chat.history", session_key=key))["messages"] == []
        with pytest.raises(Refused, match="there is no session"):
            await speaker.call("chat.history", session_key="work:slack:acme:nobody")


async def test_history_reaches_back_beyond_a_summary(office: Client, script: Script) -> None:
    """Through WebSocket, HTTP and the command, pages of one run lead to the first message."""
    script.will_by(lambda _: says("Yes."))
    async with speaking(office.session, office.url) as speaker:
        who = {"channel": "slack", "account": "acme", "peer": "historian"}
        sent = [
            await speaker.call("chat.send", **who, content=f"m{number} {office.tag}", wait=True)
            for number in range(3)
        ]
        key = sent[0]["session_key"]
        with office.up.home.changing() as db:
            db.execute(
                "INSERT INTO summaries (run_id, content, token_count, created_at) "
                "VALUES (?, 'They talked.', 3, 1)",
                (sent[1]["run_id"],),
            )

        async def by_websocket(**page: Any) -> dict[str, Any]:
            return await speaker.call("chat.history", session_key=key, **page)

        async def by_http(**page: Any) -> dict[str, Any]:
            return await office.get("/api/sessions/history", params={"key": key, **page})

        async def by_command(**page: Any) -> dict[str, Any]:
            options = [f"--{name}={value}" for name, value in page.items()]
            words = ("sessions", "show", key, *options, "--json")
            return json.loads(await asyncio.to_thread(dodona, office.up.home, *words))

        for read in (by_websocket, by_http, by_command):
            pages = [await read(limit=1)]
            while (before := pages[-1]["next"]) is not None:
                pages.append(await read(limit=1, before=before))
            said = [page["messages"][0]["content"].split()[0] for page in pages]
            assert said == ["m2", "m1", "m0"], read


async def test_collected_messages_have_one_stream_of_events(
    own: Client, script: Script, wire: Any
) -> None:
    """Each sender learns the run that answers; its events are sent once per connection."""
    own.up.home.write(base_url=wire.url, agent='queue = "collect"')
    await own.up.begin()
    script.will(says("I ", "see.", hold=1))
    who = {"channel": "slack", "account": "acme", "peer": "collector"}

    async def send(speaker: Speaker, text: str) -> int:
        return (await speaker.call("chat.send", **who, content=f"{text} {own.tag}"))["run_id"]

    async with speaking(own.session, own.url) as one, speaking(own.session, own.url) as other:
        first = await send(one, "First.")
        await script.reached()
        joint = [
            await send(one, "Second."),
            await send(other, "Third."),
            await send(one, "Fourth."),
        ]
        assert len({first, *joint}) == 2
        script.release()
        await one.events_of(first)
        for speaker in (one, other):
            events = await speaker.events_of(joint[0])
            await speaker.call("ping")  # after it, nothing is left to come
            assert speaker.events == []
            numbers = [event["seq"] for event in events]
            assert numbers == sorted(set(numbers))
    assert [asked.question.count(own.tag) for asked in script.asked] == [1, 3]


async def test_budgets_are_told(office: Client, wire: Any, script: Script) -> None:
    """A message over the ceiling is refused before any model is asked, and told so."""
    more = WORK.format(url=wire.url) + BINDINGS + "\n[budgets.daily]\ntokens = 0\n"
    office.up.home.write(base_url=wire.url, agent='id = "home"', more=more)
    await office.up.begin_again()
    who = {"channel": "slack", "account": "acme"}
    async with speaking(office.session, office.url) as speaker:
        (daily,) = (await speaker.call("budget.status"))["budgets"]
        assert daily["period_start"] == f"{daily['period']}T00:00:00Z"
        assert (daily["scope"], daily["ceiling"], daily["used"]) == ("daily", 0, 0)
        with pytest.raises(Refused) as caught:
            await speaker.call("chat.send", **who, content=f"a {office.tag}", wait=True)
        assert caught.value.error["code"] == "budget_exceeded"
    assert script.asked == []


async def test_bindings_count_as_soon_as_they_are_saved(
    office: Client, wire: Any, script: Script
) -> None:
    """On connections that are open, from the next message on."""
    who = {"channel": "irc", "account": "x"}
    async with speaking(office.session, office.url) as speaker:
        sent = await speaker.call("chat.send", **who, content=f"a {office.tag}", wait=True)
        assert (sent["agent_id"], sent["session_key"]) == ("home", "home:irc:x:main")
        binding = '\n[[bindings]]\nagent_id = "work"\nchannel = "irc"\n'
        more = WORK.format(url=wire.url) + BINDINGS + binding
        office.up.home.write(base_url=wire.url, agent='id = "home"', more=more)
        await until(lambda: "config: changed" in office.up.said(), "the config was read anew")
        sent = await speaker.call("chat.send", **who, content=f"b {office.tag}", wait=True)
        assert (sent["agent_id"], sent["answer"]) == ("work", "work-model heard: b")


async def test_a_token_says_who_speaks(office: Client) -> None:
    """In the first frame or in the head; for its own user alone."""
    ada = await User.made(office, "ada", "chat")
    async with (
        speaking(office.session, office.url) as speaker,
        speaking(office.session, office.url, headers=ada.headers) as other,
        speaking(office.session, office.url) as operator,
    ):
        await speaker.say({"token": ada.token})
        hello = await speaker.heard()
        assert (hello["user"], hello["scopes"]) == ("ada", ["chat"])
        own = {"channel": "slack", "account": "ada", "content": f"x {office.tag}"}
        sent = await speaker.call("chat.send", **own, wait=True)
        assert sent["answer"] == "work-model heard: x"
        with pytest.raises(Refused) as caught:
            await speaker.call("chat.send", **{**own, "account": "bob"})
        assert caught.value.error["code"] == "access_denied"
        assert other.hello["user"] == "ada"
        (session,) = (await other.call("session.list"))["sessions"]
        assert session["key"] == "work:slack:ada:main"
        assert (await operator.call("session.list"))["sessions"] == []
        with pytest.raises(Refused, match="there is no run"):
            await operator.call("chat.events", run_id=sent["run_id"])


async def test_a_token_that_is_revoked_ends_its_connections(office: Client, script: Script) -> None:
    """By another process, of every kind and without a request; the questions are answered."""
    script.will_by(lambda _: says("One. ", "Two.", hold=1))
    ada = await User.made(office, "ada", "chat")
    async with AsyncExitStack() as stack:
        speaker = await stack.enter_async_context(
            speaking(office.session, office.url, headers=ada.headers)
        )
        streams: list[aiohttp.ClientResponse] = []
        question = {"messages": [{"role": "user", "content": f"y {office.tag}"}]}
        for method, path, body in (
            ("GET", "/api/events", None),
            ("POST", "/api/oracle/stream", {"question": f"x {office.tag}"}),
            ("POST", "/v1/chat/completions", {**question, "model": "work", "stream": True}),
        ):
            request = office.session.request(
                method, office.url + path, json=body, headers=ada.headers
            )
            streams.append(await stack.enter_async_context(request))
        await script.reached(2)
        await asyncio.to_thread(dodona, office.up.home, "token", "revoke", str(ada.number))
        async with asyncio.timeout(LIMIT):
            assert await speaker.closed() == 4001
            texts = [await stream.text() for stream in streams]
    assert all("this token was revoked." in text for text in texts)
    assert '"type":"authentication_error"' in texts[2]
    assert "[DONE]" not in texts[2]
    script.release()

    async def statuses() -> list[str]:
        rows = await asyncio.to_thread(office.up.home.rows, "SELECT status FROM runs")
        return sorted({row["status"] for row in rows})

    async def are_answered() -> bool:
        return await statuses() == ["succeeded"]

    await until_found(are_answered, "the answers")
