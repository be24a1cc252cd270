"""`/api/events`: what happens, to whoever listens, of the kinds that were asked for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from tests.system.client import Chunks, Client
from tests.system.wire_model import Call, Script, calls, says


async def until_end(events: Chunks, run_id: int | None = None) -> list[dict[str, Any]]:
    """The events of one run, up to the end of its session."""
    return [event async for event in _of_run(events, run_id)]


async def _of_run(events: Chunks, run_id: int | None) -> AsyncIterator[dict[str, Any]]:
    while (event := await events.next()) is not None:
        if run_id is None or event["payload"].get("run_id") == run_id:
            yield event
            if event["type"] == "session.end":
                return


async def test_everything(client: Client, script: Script) -> None:
    """Without a choice all kinds come, each with its source, severity, payload and time."""
    script.will(calls(Call("vault_list"), Call("vault_read", {"path": "none.md"})), says("Ok."))
    async with client.events() as events:
        answer = await client.ask("Which notes are there?")
        got = await until_end(events, answer["run_id"])
    kinds = [event["type"] for event in got]
    assert kinds[:2] == ["run.begin", "query.start"]
    assert kinds[-1] == "session.end"
    assert kinds.count("agent.turn.start") == 2
    assert {"tool.call.success", "tool.call.failure"} <= set(kinds)
    for event in got:
        assert {"type", "source", "severity", "payload", "timestamp"} <= event.keys()
        assert event["payload"]["project_id"] == client.project
    times = [event["timestamp"] for event in got]
    assert times == sorted(times)


async def test_a_prefix(client: Client, script: Script) -> None:
    """`tool.*` are all events of tools, and no others."""
    script.will(calls(Call("vault_list"), Call("vault_read", {"path": "none.md"})), says("Ok."))
    async with client.events("tool.*", "session.end") as events:
        answer = await client.ask("Which notes are there?")
        got = await until_end(events, answer["run_id"])
    kinds = sorted(event["type"] for event in got)
    assert kinds == [
        "session.end",
        "tool.call.failure",
        "tool.call.pending",
        "tool.call.pending",
        "tool.call.success",
    ]


async def test_limits(client: Client, script: Script) -> None:
    """Warnings and ends at a limit are events as well."""
    await client.set(max_iterations=2, token_budget=1000)
    script.will_by(
        lambda asked: calls(Call("vault_search", {"query": f"oak {asked.round}"}), usage=(800, 50))
    )
    async with client.events("budget.*", "session.end") as events:
        answer = await client.ask("Search.")
        got = await until_end(events, answer["run_id"])
    assert [event["type"] for event in got] == [
        "budget.iteration.warning",
        "budget.token.warning",
        "budget.iteration.exceeded",
        "session.end",
    ]
    assert got[0]["payload"]["limit_value"] == 2
    assert got[1]["payload"]["current_value"] == 850


async def test_another_model(client: Client, script: Script) -> None:
    """A context that goes on with another model is told of."""
    script.will(says("Ok."))
    await client.ask("Who?")
    async with client.events("session.resumed") as events:
        await client.ask("Who now?", model="other-model")
        event = await events.next()
    assert event is not None
    assert event["payload"]["previous_model"] == "test-model"
    assert event["payload"]["model"] == "other-model"


async def test_the_end_of_a_cancelled_run(client: Client, script: Script) -> None:
    """SESSION_END comes whatever ended the run."""
    script.will(says("This much. ", "No more.", hold=1))
    async with client.events("session.end") as events, client.stream("Be long.") as chunks:
        await chunks.until("content")
        await client.cancel(run_id=chunks.run_id)
        await chunks.rest()
        (event,) = await until_end(events, chunks.run_id)
    assert event["payload"]["run_id"] == chunks.run_id


async def test_a_wrong_kind(client: Client) -> None:
    """A pattern that is none is refused, before a stream begins."""
    answered = await client.send("GET", "/api/events", params={"types": "tool.x*"})
    assert answered.status == 400
    assert "tool.x*" in answered.error["message"]
