"""Streams of events: whole, in order, alive, and taken up again where they broke."""

from __future__ import annotations

import asyncio

import pytest

from dodona.agent.question import Question
from dodona.core.chunks import ContentChunk, RestartChunk, StreamChunk
from dodona.core.errors import Cancelled, StoreError
from dodona.core.events import Event
from dodona.gateway.http.sse import encode_events
from dodona.gateway.settings import GatewaySettings
from tests.gateway.plain_agency import LONG, until
from tests.gateway.talking import Following, Gateway, events, gateway_up

WHY = {"question": "Why?"}
FIRST = 1_000_001


def test_a_batch_is_one_piece_and_every_event_two_lines() -> None:
    """The id is the chunk's seq; text with line breaks stays on its line."""
    restart = RestartChunk(discard_after=6, reason="again")
    batch = [StreamChunk(3, 7, ContentChunk("a\nb\r\n\u2028")), StreamChunk(3, 8, restart)]
    assert encode_events(batch).decode() == (
        'id: 7\ndata: {"type":"content","content":"a\\nb\\r\\n\u2028","run_id":3,"seq":7}\n\n'
        'id: 8\ndata: {"type":"restart","discard_after":6,"reason":"again","run_id":3,"seq":8}\n\n'
    )


def test_half_a_character_does_not_break_a_stream() -> None:
    """A model may cut one in two."""
    assert b"x\xef\xbf\xbdy" in encode_events([StreamChunk(1, 1, ContentChunk("x\ud83dy"))])


async def test_an_answer_streams_as_it_comes(gateway: Gateway) -> None:
    """Headers with the run at once, each chunk when it is there, the end after the last."""
    async with gateway.client.post(gateway.url + "/api/oracle/stream", json=WHY) as response:
        assert response.status == 200
        assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert response.headers["cache-control"] == "no-cache"
        assert response.headers["x-accel-buffering"] == "no"
        assert response.headers["dodona-run"] == "1"
        following = Following(response)
        await gateway.run.say("Be")
        assert [each["content"] for each in events(await following.until("\n\n"))] == ["Be"]
        await gateway.run.say("cause")
        await gateway.run.finish()
        text = await following.rest()
    assert [each["type"] for each in events(text)] == ["content", "content", "done"]
    assert [each["seq"] for each in events(text)] == [FIRST, FIRST + 1, FIRST + 2]
    assert text.startswith(f"id: {FIRST}\ndata: ")


async def test_a_run_that_fails_says_so_in_its_last_chunk(gateway: Gateway) -> None:
    """The stream itself ends well."""
    async with gateway.client.post(gateway.url + "/api/oracle/stream", json=WHY) as response:
        await gateway.run.fail(Cancelled("it was cancelled.", hint="Ask again."))
        told = events(await Following(response).rest())
    assert told[-1]["error"] == {
        "code": "cancelled",
        "message": "it was cancelled.",
        "hint": "Ask again.",
    }


@pytest.mark.parametrize("way", ["header", "query", "both"])
async def test_a_run_is_followed_from_where_one_was(gateway: Gateway, way: str) -> None:
    """What was seen does not come again; the header of a browser that returns wins."""
    await gateway.agency.oracle.submit(Question(**WHY).to_request("local"))
    await gateway.run.say("a", "b", "c")
    path = f"/api/runs/1/events{'' if way == 'header' else f'?after={FIRST + 1}'}"
    if way == "both":
        path = f"/api/runs/1/events?after={FIRST}"
    headers = {} if way == "query" else {"Last-Event-ID": str(FIRST + 1)}
    async with gateway.client.get(gateway.url + path, headers=headers) as response:
        following = Following(response)
        await following.until("\n\n")
        await gateway.run.say("d")
        await gateway.run.finish()
        told = events(await following.rest())
    assert [each.get("content") for each in told] == ["c", "d", None]


async def test_a_run_with_nothing_more_to_tell_is_204(gateway: Gateway) -> None:
    """By that an EventSource knows not to come back."""
    await gateway.agency.oracle.submit(Question(**WHY).to_request("local"))
    await gateway.run.finish()
    status, told, _ = await gateway.call("GET", f"/api/runs/1/events?after={FIRST}")
    assert (status, told) == (204, None)


@pytest.mark.parametrize("given", ["x", "-1", "1.5", "99999999999999999999", "\u00b2"])
async def test_a_place_that_is_none_is_refused(gateway: Gateway, given: str) -> None:
    """In the header as in the address."""
    await gateway.agency.oracle.submit(Question(**WHY).to_request("local"))
    status, told, _ = await gateway.call("GET", "/api/runs/1/events", Last_Event_ID=given)
    assert (status, told["error"]["code"]) == (400, "bad_request")


async def test_an_unknown_run_is_a_plain_404(gateway: Gateway) -> None:
    """Not a stream that ends."""
    status, told, headers = await gateway.call("GET", "/api/runs/9/events")
    assert (status, told["error"]["code"]) == (404, "not_found")
    assert headers["content-type"] == "application/json"


async def test_a_silent_stream_gives_signs_of_life() -> None:
    """Comments, which clients pass over; also before the first chunk of a run that waits."""
    async with gateway_up(rules=GatewaySettings(heartbeat_interval=0.05)) as gateway:
        await gateway.agency.oracle.submit(Question(**WHY).to_request("local"))
        async with gateway.client.get(gateway.url + "/api/runs/1/events") as response:
            following = Following(response)
            await following.until(": \n\n", count=3)
            await gateway.run.say("Because")
            await following.until("Because")
            before = following.text.count(": \n\n")
            await following.until(": \n\n", count=before + 1)
            await gateway.run.finish()
            told = events(await following.rest())
    assert [each["type"] for each in told] == ["content", "done"]


async def test_a_client_that_leaves_stops_its_stream_only(gateway: Gateway) -> None:
    """The run goes on, and others follow it still."""
    async with gateway.client.post(gateway.url + "/api/oracle/stream", json=WHY) as response:
        run = gateway.run
        async with gateway.client.get(gateway.url + "/api/runs/1/events") as other:
            await run.say("Be")
            await Following(response).until("Be")
            staying = Following(other)
            await staying.until("Be")
            response.close()
            await until(lambda: run.followers == 1, "one stream has ended")
            await run.say("cause")
            await run.finish()
            told = events(await staying.rest())
    assert [each["type"] for each in told] == ["content", "content", "done"]
    assert not gateway.agency.oracle.cancelled


async def test_a_client_that_does_not_read_holds_up_nobody(gateway: Gateway) -> None:
    """The run puts its chunks, another reads them all, and the slow one gets them later."""
    async with gateway.client.post(gateway.url + "/api/oracle/stream", json=WHY) as slow:
        run, text = gateway.run, "x" * 100_000
        for _ in range(100):
            await run.say(text)  # ten megabytes: far more than any buffer on the way
        await run.finish()
        async with gateway.client.get(gateway.url + "/api/runs/1/events") as quick:
            assert len(events(await Following(quick).rest())) == 101
        assert len(events(await Following(slow).rest())) == 101


async def test_a_stream_that_breaks_is_cut_so_that_the_client_comes_back(
    gateway: Gateway, caplog: pytest.LogCaptureFixture
) -> None:
    """An end without a last chunk would look like one; what happened is in the log."""
    async with gateway.client.post(gateway.url + "/api/oracle/stream", json=WHY) as response:
        following = Following(response)
        await gateway.run.say("Be")
        await following.until("Be")
        gateway.agency.oracle.broken = StoreError("no disk.")
        await gateway.run.say("cause")
        with pytest.raises(Exception, match="payload is not completed"):
            await following.rest()
    assert "no disk." in caplog.text
    gateway.agency.oracle.broken = None
    await gateway.run.finish()
    async with gateway.client.get(gateway.url + f"/api/runs/1/events?after={FIRST}") as response:
        told = events(await Following(response).rest())
    assert [each["type"] for each in told] == ["content", "done"]


async def test_events_are_told_to_their_user_as_they_happen(gateway: Gateway) -> None:
    """Those of the wanted types; from the moment the stream has begun."""
    bus = gateway.agency.events
    path = "/api/events?types=tool.*,query.start"
    async with gateway.client.get(gateway.url + path) as response:
        mine, yours = {"user_id": "local", "n": 1}, {"user_id": "other", "n": 2}
        bus.emit(Event("tool.call.success", "test", payload=yours))
        bus.emit(Event("session.end", "test", payload=mine))
        bus.emit(Event("tool.call.success", "test", payload=mine, timestamp=5.0, id="e-1"))
        bus.emit(Event("query.start", "test", payload={**mine, "odd": object()}))
        told = events(await Following(response).until("\n\n", count=2))
    assert told[0] == {
        "id": "e-1",
        "type": "tool.call.success",
        "dedupe_key": "",
        "marks": [],
        "source": "test",
        "severity": "info",
        "payload": mine,
        "timestamp": 5.0,
    }
    assert told[1]["type"] == "query.start"


async def test_a_stream_of_events_lets_go_when_the_client_leaves(gateway: Gateway) -> None:
    """Nothing gathers for somebody who is gone."""
    bus = gateway.agency.events
    async with gateway.client.get(gateway.url + "/api/events"):
        assert len(bus._subscriptions) == 1
    await until(lambda: not bus._subscriptions, "the subscription has ended")


async def test_a_hundred_streams_at_once(gateway: Gateway) -> None:
    """Each gets all of its run, in order."""

    async def one(number: int) -> list[str]:
        async with gateway.client.get(f"{gateway.url}/api/runs/{number}/events") as response:
            told = events(await Following(response).rest())
            return [each["content"] for each in told[:-1]]

    for _ in range(100):
        await gateway.agency.oracle.submit(Question(**WHY).to_request("local"))
    runs = list(gateway.agency.oracle.runs.values())
    async with asyncio.timeout(LONG):
        following = [asyncio.create_task(one(run.id)) for run in runs]
        for word in range(20):
            for run in runs:
                await run.say(f"{run.id}-{word}")
        for run in runs:
            await run.finish()
        found = await asyncio.gather(*following)
    assert found == [[f"{run.id}-{word}" for word in range(20)] for run in runs]
