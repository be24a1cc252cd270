"""`/ws`, over loopback: what is asked is answered, and no client hurts another."""

from __future__ import annotations

import asyncio
import json
import re
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import aiohttp
import pytest

import dodona
from dodona.core import chunks
from dodona.core.domain.conversations.conversation import RunRequest
from dodona.core.domain.routing import Binding, LiveRouter, Router
from dodona.core.errors import LaneFull, NotFound, StoreError
from dodona.gateway.websocket import METHODS
from dodona.gateway.websocket.protocol import MAX_AWAITED_RUNS, MAX_MESSAGE_BYTES, MAX_OPEN_REQUESTS
from tests.gateway.plain_agency import LONG, PlainAgency, PlainOracle, until
from tests.gateway.speaking import Refused, Speaker, speaking
from tests.gateway.talking import Gateway, gateway_up

KEY = "oracle:web:local:main"


@pytest.fixture
async def speaker(gateway: Gateway) -> AsyncIterator[Speaker]:
    async with speaking(gateway.client, gateway.url) as speaker:
        yield speaker


def bad_request(id_: Any, message: str, hint: str = "") -> dict[str, Any]:
    return {"id": id_, "error": {"code": "bad_request", "message": message, "hint": hint}}


# -- asking --------------------------------------------------------------------------------------


async def test_it_begins_with_a_hello(speaker: Speaker) -> None:
    """Who we are, who the client is, and what it can ask for."""
    assert speaker.hello == {
        "event": "hello",
        "version": dodona.__version__,
        "user": "local",
        "scopes": ["admin", "channel", "chat", "read"],
        "methods": [method.name for method in METHODS],
    }


async def test_a_token_that_is_given_counts(gateway: Gateway) -> None:
    """Also where none is needed: a wrong one is not overlooked. Later it is no frame at all."""
    async with speaking(gateway.client, gateway.url) as speaker:
        await speaker.say({"token": "dod_anything"})
        assert await speaker.closed() == 4001
    async with speaking(gateway.client, gateway.url) as speaker:
        assert await speaker.call("ping") == {"pong": True}
        await speaker.say({"token": "dod_anything"})
        assert (await speaker.heard())["error"]["code"] == "bad_request"


async def test_a_message_is_acknowledged_and_its_run_told(
    gateway: Gateway, speaker: Speaker
) -> None:
    """The result first, then events in order, each with its run, its place and its session."""
    sent = await speaker.send("Why?")
    assert sent == {"run_id": 1, "session_key": KEY, "agent_id": "oracle"}
    run = await gateway.asked()
    await run.say("Because ", "it is.")
    await run.finish()
    events = await speaker.events_of(1)
    assert [event["event"] for event in events] == ["text", "text", "done"]
    last = events[-1]["data"]
    assert (last["finish"], last["termination_reason"]) == ("stop", "finished")
    assert [event["data"].get("content") for event in events] == ["Because ", "it is.", None]
    places = [(event["run_id"], event["session_key"], event["seq"]) for event in events]
    assert places == [(1, KEY, 1_000_001), (1, KEY, 1_000_002), (1, KEY, 1_000_003)]


async def test_who_wants_to_wait_is_answered_once(gateway: Gateway, speaker: Speaker) -> None:
    """With the whole answer, or the error of the run; there are no events."""
    asked = await speaker.begin(
        "chat.send", channel="web", account="local", content="Why?", wait=True
    )
    run = await gateway.asked()
    assert await speaker.call("ping") == {"pong": True}
    await run.say("Because.")
    await run.finish()
    answer = await speaker.answer(asked)
    assert (answer["answer"], answer["run_id"], answer["session_key"]) == ("Because.", 1, KEY)
    asked = await speaker.begin(
        "chat.send", channel="web", account="local", content="And?", wait=True
    )
    await (await gateway.asked(2)).fail(StoreError("the store is gone."))
    with pytest.raises(Refused) as caught:
        await speaker.answer(asked)
    assert caught.value.error["code"] == "store_unavailable"
    assert speaker.events == []


async def test_every_method_reaches_the_agency(gateway: Gateway, speaker: Speaker) -> None:
    first = await speaker.send("One", peer="p1")
    await speaker.send("Two", peer="p2")
    keys = ["oracle:web:local:p1", "oracle:web:local:p2"]
    assert first["session_key"] == keys[0]
    assert await speaker.call("session.list") == {"sessions": [{"key": key} for key in keys]}
    assert await speaker.call("session.list", limit=1, skip=1) == {"sessions": [{"key": keys[1]}]}
    assert await speaker.call("chat.history", session_key=keys[0], before=7) == {
        "session_key": keys[0],
        "messages": [{"content": "One"}],
        "next": 7,
    }
    assert await speaker.call("session.clear", session_key=keys[0]) == {"session": {"key": keys[0]}}
    decided = await speaker.call("chat.approve", run_id=2, call="c1", approved=False, note="No.")
    assert decided == {"run_id": 2, "call": "c1"}
    assert gateway.agency.approvals.decided == [(2, "c1", False, "No.")]
    cancelled = await speaker.call("chat.cancel", run_id=1)
    assert cancelled == {"run_ids": [1], "status": "cancelled"}
    assert [event["event"] for event in await speaker.events_of(1)] == ["error"]
    assert await speaker.call("budget.status") == {"budgets": [{"kind": "daily", "left": 7}]}
    assert await speaker.call("plugin.list") == {"plugins": []}
    assert await speaker.call("status") == {
        "status": "ready",
        "version": dodona.__version__,
        "user": "local",
        "default_agent": "oracle",
        "agents": ["oracle"],
        "store": "plain",
    }


async def test_bindings_decide_who_answers() -> None:
    """By all that a message says; a new router counts from the next message on."""
    routing = LiveRouter(Router([Binding(agent_id="work", guild="g", team="t")], "home"))
    async with (
        gateway_up(routing=routing) as gateway,
        speaking(gateway.client, gateway.url) as speaker,
    ):
        assert (await speaker.send("a"))["agent_id"] == "home"
        assert (await speaker.send("b", guild="g", team="t"))["agent_id"] == "work"
        routing.replace(Router((), "elsewhere"))
        sent = await speaker.send("c", guild="g", team="t", peer="x:y")
        assert sent["session_key"] == "elsewhere:web:local:x%3Ay"


async def test_whoever_speaks_for_others_is_a_peer(gateway: Gateway, speaker: Speaker) -> None:
    """What a stranger wrote is text from outside, and the agent is wary of it."""
    await speaker.send("mine")
    await speaker.send("mine too", peer="local")
    await speaker.send("theirs", account="bot")
    await speaker.send("theirs too", peer="U42")
    origins = [run.request.origin for run in gateway.agency.oracle.runs.values()]
    assert origins == ["user", "user", "peer", "peer"]


async def test_a_client_that_was_away_goes_on_where_it_was(
    gateway: Gateway, speaker: Speaker
) -> None:
    """A connection that breaks ends what was followed on it, and no run."""
    async with speaking(gateway.client, gateway.url) as other:
        await other.send("Why?")
        run = await gateway.asked()
        await run.say("One ")
        seen = (await other.event())["seq"]
    await until(lambda: run.followers == 0, "nobody follows")
    await run.say("two")
    await run.finish()
    assert await speaker.call("chat.events", run_id=1, after=seen) == {
        "run_id": 1,
        "session_key": None,
    }
    events = await speaker.events_of(1)
    assert [event["event"] for event in events] == ["text", "done"]
    assert gateway.agency.oracle.cancelled == []
    with pytest.raises(Refused, match=re.escape("there is no run 99.")):
        await speaker.call("chat.events", run_id=99)


async def test_what_cannot_be_told_is_told(gateway: Gateway, speaker: Speaker) -> None:
    """The run goes on; the client knows that it hears no more of it, and where it was."""
    gateway.agency.oracle.broken = StoreError("the store is gone.")
    await speaker.send("Why?")
    event = await speaker.event()
    assert (event["event"], event["seq"], event["data"]["is_lost"]) == ("error", 0, True)
    assert event["data"]["error"]["code"] == "store_unavailable"


# -- order -----------------------------------------------------------------------------------------


class SlowOracle(PlainOracle):
    """Takes each message in only when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.began: list[str] = []
        self.may: dict[str, asyncio.Event] = {}

    async def submit(self, request: RunRequest) -> int:
        self.began.append(request.question)
        await self.may.setdefault(request.question, asyncio.Event()).wait()
        return await super().submit(request)

    def let(self, content: str) -> None:
        self.may.setdefault(content, asyncio.Event()).set()


@pytest.fixture
async def slow() -> AsyncIterator[tuple[Speaker, SlowOracle, Gateway]]:
    agency = PlainAgency()
    agency.oracle = slow_oracle = SlowOracle()
    async with (
        gateway_up(agency) as gateway,
        speaking(gateway.client, gateway.url) as speaker,
    ):
        yield speaker, slow_oracle, gateway


async def test_messages_of_a_session_go_in_as_they_came(
    slow: tuple[Speaker, SlowOracle, Gateway],
) -> None:
    """The second waits for the first, however long that takes; another session does not."""
    speaker, oracle, _ = slow
    mine = {"channel": "web", "account": "local"}
    for content in ("one", "two", "three"):
        oracle.let("two"), oracle.let("three")
        await speaker.begin("chat.send", **mine, content=content)
    oracle.let("beside")
    assert (await speaker.send("beside", peer="another"))["run_id"] == 1
    assert oracle.began == ["one", "beside"]
    oracle.let("one")
    assert [(await speaker.answer(id_))["run_id"] for id_ in (1, 2, 3)] == [2, 3, 4]
    assert oracle.began == ["one", "beside", "two", "three"]


async def test_what_is_being_taken_in_is_taken_in(
    slow: tuple[Speaker, SlowOracle, Gateway],
) -> None:
    """Also when its client leaves meanwhile: nobody waits for it then."""
    speaker, oracle, gateway = slow
    await speaker.begin("chat.send", channel="web", account="local", content="last words")
    await until(lambda: oracle.began, "it came")
    await speaker.socket.close()
    oracle.let("last words")
    run = await gateway.asked()
    assert run.followers == 0
    assert run.chunks == []


# -- what goes wrong -------------------------------------------------------------------------------


PARAMS_OF_SEND = {"channel": "web", "account": "local", "content": "x"}

WRONG = [
    ("[]", bad_request(None, "the frame must be a JSON object.", 'For example: {"…": …}.')),
    ("[" * 100_000, bad_request(None, "the frame is nested too deeply.")),
    (
        {"id": 7},
        bad_request(
            7, "method must be the name of a method.", "The hello event lists the methods."
        ),
    ),
    (
        {"id": 1.5, "method": "ping"},
        bad_request(None, "id must be a whole number or a string of 1 to 100 characters."),
    ),
    (
        {"id": True, "method": "ping"},
        bad_request(None, "id must be a whole number or a string of 1 to 100 characters."),
    ),
    (
        {"id": "x" * 101, "method": "ping"},
        bad_request(None, "id must be a whole number or a string of 1 to 100 characters."),
    ),
    (
        {"id": "a", "method": "ping", "params": [1]},
        bad_request("a", "params must be an object."),
    ),
    (
        {"id": "a", "method": "ping", "parms": {}},
        bad_request("a", "there is no field 'parms'.", "Did you mean 'params'?"),
    ),
    (
        {"id": 1, "method": "pong"},
        {
            "id": 1,
            "error": {
                "code": "not_found",
                "message": "there is no method 'pong'.",
                "hint": "Did you mean 'ping'?",
            },
        },
    ),
    (
        {"id": 1, "method": "ping", "params": {"x": 1}},
        bad_request(1, "there is no parameter 'x'.", "This method has no parameters."),
    ),
    (
        {"id": 1, "method": "chat.cancel", "params": {"run_id": "7"}},
        bad_request(1, "run_id must be a whole number of at least 0 (got '7')."),
    ),
    (
        {"id": 1, "method": "chat.cancel", "params": {"run_id": True}},
        bad_request(1, "run_id must be a whole number of at least 0 (got true)."),
    ),
    (
        {"id": 1, "method": "chat.send", "params": {**PARAMS_OF_SEND, "content": None}},
        bad_request(1, "content is missing: a string of 1 to 10,000 characters."),
    ),
    (
        {"id": 1, "method": "chat.send", "params": {**PARAMS_OF_SEND, "wait": 1}},
        bad_request(1, "wait must be true or false (got 1)."),
    ),
    (
        {"id": 1, "method": "chat.send", "params": {**PARAMS_OF_SEND, "chanel": "x"}},
        bad_request(1, "there is no parameter 'chanel'.", "Did you mean 'channel'?"),
    ),
]


async def test_a_wrong_frame_gets_an_error_and_ends_nothing(
    gateway: Gateway, speaker: Speaker
) -> None:
    """What waits meanwhile is answered as if nothing had happened."""
    params = {**PARAMS_OF_SEND, "wait": True}
    await speaker.say({"id": "waiting", "method": "chat.send", "params": params})
    run = await gateway.asked()
    for frame, answer in WRONG:
        await speaker.say(frame)
        assert await speaker.heard() == answer, frame
    await run.say("Still here.")
    await run.finish()
    assert (await speaker.answer("waiting"))["answer"] == "Still here."


async def test_no_json_is_told_with_its_place(speaker: Speaker) -> None:
    await speaker.say('{"id": 1,\n "method" ping}')
    error = (await speaker.heard())["error"]
    assert error["message"].startswith("the frame is not valid JSON: ")
    assert error["where"] == {"file": "frame", "line": 2, "column": 11}


async def test_several_mistakes_are_told_at_once(speaker: Speaker) -> None:
    with pytest.raises(Refused) as caught:
        await speaker.call("chat.send", peer=1, content="")
    told = [problem["message"] for problem in caught.value.error["problems"]]
    assert [text.partition(" ")[0] for text in told] == ["channel", "account", "peer", "content"]


async def test_a_binary_frame_gets_an_error(speaker: Speaker) -> None:
    await speaker.socket.send_bytes(b'{"id": 1, "method": "ping"}')
    answer = bad_request(None, "a frame must be text.", "Send JSON in a text frame.")
    assert await speaker.heard() == answer
    assert await speaker.call("ping") == {"pong": True}


async def test_a_frame_that_is_too_long_gets_an_error(speaker: Speaker) -> None:
    """Up to a size that nobody sends by mistake; beyond it the connection ends."""
    await speaker.say("x" * ((1 << 20) + 1))
    error = (await speaker.heard())["error"]
    assert (error["code"], error["message"]) == (
        "request_too_large",
        "the frame is longer than 1,048,576 characters.",
    )
    assert await speaker.call("ping") == {"pong": True}
    with suppress(ConnectionError):  # it is not read to its end
        await speaker.say("x" * (MAX_MESSAGE_BYTES + 1))
    assert await speaker.closed() in (1009, None)
    assert speaker.socket.closed


async def test_an_id_in_use_is_refused_under_no_id(gateway: Gateway, speaker: Speaker) -> None:
    """Else it would be taken for the answer to the first request, which goes on."""
    gateway.agency.oracle.gate.clear()
    await speaker.say({"id": "x", "method": "chat.send", "params": PARAMS_OF_SEND})
    await speaker.say({"id": "x", "method": "ping"})
    assert await speaker.heard() == bad_request(
        None,
        "id 'x' belongs to a request that has no response yet.",
        "Use a unique id for each request.",
    )
    gateway.agency.oracle.gate.set()
    assert (await speaker.answer("x"))["run_id"] == 1
    await speaker.say({"id": "x", "method": "ping"})
    assert await speaker.answer("x") == {"pong": True}


async def test_a_flood_is_refused_and_what_was_taken_is_answered(
    gateway: Gateway, speaker: Speaker
) -> None:
    """So many requests at once and no more; the others are told so."""
    gateway.agency.oracle.gate.clear()
    mine = {"channel": "web", "account": "local", "content": "x"}
    taken = [
        await speaker.begin("chat.send", **mine, peer=f"p{n}") for n in range(MAX_OPEN_REQUESTS)
    ]
    with pytest.raises(Refused) as caught:
        await speaker.call("ping")
    assert caught.value.error == {
        "code": "too_many_requests",
        "message": f"{MAX_OPEN_REQUESTS} requests on this connection have no response yet.",
        "hint": "Wait for some of the responses.",
    }
    async with speaking(gateway.client, gateway.url) as other:
        assert await other.call("ping") == {"pong": True}
    gateway.agency.oracle.gate.set()
    assert {(await speaker.answer(id_))["run_id"] for id_ in taken} == {
        *range(1, MAX_OPEN_REQUESTS + 1)
    }
    assert await speaker.call("ping") == {"pong": True}


async def test_a_connection_waits_for_so_many_runs(gateway: Gateway, speaker: Speaker) -> None:
    """What it cannot be told of is refused before it is taken in."""
    for number in range(MAX_AWAITED_RUNS):
        await speaker.send("x", peer=f"p{number}")
    with pytest.raises(Refused) as caught:
        await speaker.send("one too many")
    assert caught.value.error["code"] == "too_many_requests"
    assert len(gateway.agency.oracle.runs) == MAX_AWAITED_RUNS
    await gateway.run.finish()
    await speaker.events_of(MAX_AWAITED_RUNS)
    await until(lambda: gateway.run.followers == 0, "it is not followed any more")
    assert (await speaker.send("there is room again"))["run_id"] == MAX_AWAITED_RUNS + 1


async def test_what_the_agency_refuses_is_told(gateway: Gateway, speaker: Speaker) -> None:
    gateway.agency.oracle.refusal = LaneFull("20 messages wait already.")
    with pytest.raises(Refused) as caught:
        await speaker.send("x")
    assert caught.value.error["code"] == "queue_full"
    with pytest.raises(Refused, match="there is no session"):
        await speaker.call("session.clear", session_key="oracle:web:local:nobody")
    gateway.agency.approvals.refusal = NotFound("nothing waits there.")
    with pytest.raises(Refused, match="nothing waits there"):
        await speaker.call("chat.approve", run_id=1, call="x", approved=True)


async def test_a_bug_ends_its_request_alone(
    gateway: Gateway, speaker: Speaker, caplog: pytest.LogCaptureFixture
) -> None:
    """The log has it; the client is told no more than that. A file error is a bug too."""
    for bug in (ZeroDivisionError("a secret"), FileNotFoundError("a secret")):
        gateway.agency.oracle.refusal = bug
        with pytest.raises(Refused) as caught:
            await speaker.send("x")
        assert caught.value.error == {
            "code": "error",
            "message": "an internal error occurred.",
            "hint": "See the server log.",
        }
        assert "chat.send failed" in caplog.text
    assert await speaker.call("ping") == {"pong": True}


# -- slow and gone ---------------------------------------------------------------------------------


async def test_a_client_that_does_not_read_is_waited_for_by_its_own_events_alone(
    gateway: Gateway,
) -> None:
    """Thirty megabytes for it are not kept in memory; when it reads, it gets them all in order."""
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port, limit=1 << 16)
    writer.write(
        b"GET /ws HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
        % gateway.port
    )
    await reader.readuntil(b"\r\n\r\n")
    request = json.dumps({"id": 1, "method": "chat.send", "params": PARAMS_OF_SEND}).encode()
    writer.write(b"\x81\xfe" + len(request).to_bytes(2) + bytes(4) + request)
    run = await gateway.asked()
    await until(lambda: run.followers == 1, "it is followed")
    tracemalloc.start()
    try:
        await run.put(*[chunks.ContentChunk("x" * 30_000)] * 1_000)
        async with speaking(gateway.client, gateway.url) as other:
            for _ in range(20):
                assert await other.call("ping") == {"pong": True}
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert max(kept, peak) < 8 << 20
    await run.finish()
    async with asyncio.timeout(LONG):
        places = [place async for place in _places(reader)]
    assert places == [*range(1_000_001, 1_000_001 + 1_001)]
    writer.close()


async def _places(reader: asyncio.StreamReader) -> AsyncIterator[int]:
    """The seq of each event, until the last."""
    while True:
        head = await reader.readexactly(2)
        size = head[1]
        if size >= 126:
            size = int.from_bytes(await reader.readexactly(2 if size == 126 else 8))
        frame = json.loads(await reader.readexactly(size))
        if "seq" in frame:
            yield frame["seq"]
        if frame.get("event") == "done":
            return


async def test_clients_are_told_when_the_gateway_ends() -> None:
    """With 1001: they may come back, and go on with the run that they followed."""
    async with aiohttp.ClientSession() as client:
        async with gateway_up() as gateway:
            socket = await client.ws_connect(f"{gateway.url}/ws")
            speaker = Speaker(socket)
            await speaker.heard()
            await speaker.send("Why?")
            run = await gateway.asked()
            await until(lambda: run.followers == 1, "it is followed")
        assert await speaker.closed() == 1001
        assert run.followers == 0
        assert gateway.agency.oracle.cancelled == []


async def test_a_client_that_vanishes_leaves_nothing_behind(gateway: Gateway) -> None:
    """No close frame, no goodbye: its events end, and its run goes on."""
    async with speaking(gateway.client, gateway.url) as speaker:
        await speaker.send("Why?")
        run = await gateway.asked()
        await until(lambda: run.followers == 1, "it is followed")
        transport = speaker.socket._response.connection.transport
        transport.abort()
        await until(lambda: run.followers == 0, "nobody follows")
    assert not run.has_ended


# -- the door --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Host": "evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
    ],
)
async def test_another_web_site_cannot_open_one(gateway: Gateway, headers: dict[str, str]) -> None:
    with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
        await gateway.client.ws_connect(f"{gateway.url}/ws", headers=headers)
    assert caught.value.status == 403


async def test_our_own_page_may(gateway: Gateway) -> None:
    async with speaking(gateway.client, gateway.url, headers={"Origin": gateway.url}) as speaker:
        assert await speaker.call("ping") == {"pong": True}


async def test_there_is_no_other_one(gateway: Gateway) -> None:
    """Only `/ws` can be upgraded, and only an upgrade finds it."""
    with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
        await gateway.client.ws_connect(f"{gateway.url}/api/runs")
    assert caught.value.status == 403
    status, document, _ = await gateway.call("GET", "/ws")
    assert (status, document["error"]["code"]) == (404, "not_found")
