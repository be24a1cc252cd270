"""What a model is told of what happens: at its point, once, over HTTP and over restarts."""

from __future__ import annotations

from typing import Any

import pytest

from dodona.core.events import SELF_NOTIFY
from tests.system.client import Chunk, Client, notices, of_type, text_of
from tests.system.waiting import until_found
from tests.system.wire_model import Asked, Call, Reply, Script, calls, says


def note(message: str, **more: Any) -> Call:
    return Call("notify_self", {"message": message, **more})


def missing(*names: str) -> tuple[Call, ...]:
    """Calls that fail: there are no such notes."""
    return tuple(Call("vault_read", {"path": f"{name}.md"}) for name in names)


def said(chunks: list[Chunk], system_type: str) -> list[str]:
    return [each["system_message"] for each in notices(chunks, system_type)]


async def test_failures_are_told_in_one_notice(client: Client, script: Script) -> None:
    """Three failures of a tool in a turn: one notice, in the next request and on the stream."""
    failing = calls(*missing("one", "two", "three"), Call("vault_list"))
    script.will(failing, says("There are none."))
    chunks = await client.streamed("Read all.")
    assert said(chunks, "tool_failure") == ["vault_read failed 3 times."]
    first, second = script.asked
    assert first.notices == []
    told = [text for text in second.notices if text.startswith("vault_read failed 3 times:")]
    assert len(told) == 1
    assert all(f"there is no note '{name}.md'" in told[0] for name in ("one", "two", "three"))
    assert told[0].endswith("Do not call it the same way again.")
    # It stays in its place: the next question's model reads it once, and is not told again.
    script.will_in_turn(says("Indeed."))
    await client.ask("And now?")
    assert str(script.asked[2].messages).count("vault_read failed 3 times:") == 1


async def test_a_warning_leaves_room_for_one_more_call(client: Client, script: Script) -> None:
    """At 80 % of the tokens the next request says so, and its answer is within the budget."""
    await client.set(token_budget=1000)
    script.will(
        calls(Call("vault_read", {"path": "oak.md"}), usage=(780, 20)),
        says("Through its leaves.", usage=(150, 20)),
    )
    chunks = await client.streamed("How did the oak speak?")
    warned = "800 of 1,000 tokens are used. Be brief."
    assert said(chunks, "limit_warning") == [warned]
    assert [asked.notices for asked in script.asked] == [[], [warned]]
    assert text_of(chunks) == "Through its leaves."
    assert notices(chunks, "limit_reached") == []
    (warning,) = notices(chunks, "limit_warning")
    assert (warning["metadata"]["current_value"], warning["metadata"]["limit_value"]) == (800, 1000)


async def test_below_the_mark_nothing_is_told(client: Client, script: Script) -> None:
    """One token less than 80 % is no warning."""
    await client.set(token_budget=1000)
    script.will(
        calls(Call("vault_read", {"path": "oak.md"}), usage=(780, 19)),
        says("Through its leaves.", usage=(150, 20)),
    )
    chunks = await client.streamed("How did the oak speak?")
    assert of_type(chunks, "system") == []
    assert [asked.notices for asked in script.asked] == [[], []]


async def switch(client: Client, subscriber: str, *, on: bool) -> Any:
    return await client.send("PUT", f"/api/subscribers/{subscriber}", {"enabled": on})


async def test_a_subscriber_that_is_turned_off_is_silent(client: Client, script: Script) -> None:
    """At once, in a run that is under way too; turned on again it speaks again."""
    script.will(
        calls(note("Before."), texts=("x",)),
        calls(note("Meanwhile."), texts=("y",), hold=0),
        says("Done."),
    )
    try:
        async with client.stream("Tell yourself.") as stream:
            await script.reached(2)
            switched = await switch(client, "self_notify", on=False)
            assert (switched.status, switched.json["enabled"]) == (200, False)
            script.release()
            chunks = await stream.rest()
        assert said(chunks, "self_notify") == ["Before."]
        assert "Meanwhile." not in script.asked[2].notices
    finally:
        assert (await switch(client, "self_notify", on=True)).json["enabled"]
    script.will(calls(note("After.")), says("Done."))
    assert said(await client.streamed("And now?", new=True), "self_notify") == ["After."]


async def test_a_core_subscriber_cannot_be_turned_off(client: Client, script: Script) -> None:
    """It is refused with the reason, and the limit is told all the same."""
    refused = await switch(client, "budget_warning", on=False)
    assert refused.status == 400
    assert refused.error["message"] == (
        "budget_warning is a core subscriber and cannot be disabled."
    )
    assert refused.error["hint"] == "It reports limits, which every user must see."
    await client.set(max_iterations=2)
    script.will(calls(Call("vault_list")), says("Done."))
    assert said(await client.streamed("List."), "limit_warning")


async def test_a_subscriber_that_is_not_there(client: Client) -> None:
    """The nearest name is offered."""
    missing = await switch(client, "self_notfy", on=False)
    assert missing.status == 404
    assert missing.error["message"] == "there is no subscriber 'self_notfy'."
    assert missing.error["hint"] == "Did you mean 'self_notify'?"


@pytest.mark.parametrize(
    "due", [{"persist_cross_session": True}, {"deliver_at": "next_session"}, {"deliver_at": "+0s"}]
)
async def test_a_note_outlives_the_process(
    client: Client, script: Script, due: dict[str, Any]
) -> None:
    """It is in the store before the call has its result; another process tells it, once."""
    script.will(calls(note("Ask about elms.", **due)), says("Noted.", hold=0))
    run_id = await client.begin("Remember.")
    await script.reached(2)
    at_once = "Ask about elms." in script.asked[1].notices
    await client.up.begin_again()
    script.release()
    first = await client.followed(run_id)
    script.will(says("Elms."))
    second = await client.streamed("Hello?", new=True)
    third = await client.streamed("Hello again?", new=True)
    told = [said(chunks, "self_notify") for chunks in (first, second, third)]
    assert told == ([["Ask about elms."], [], []] if at_once else [[], ["Ask about elms."], []])
    in_second = script.asked[-2].notices.count("Ask about elms.")
    assert in_second == (0 if at_once else 1)
    listed = await client.get("/api/notifications", params={"project_id": client.project})
    (kept,) = listed["notices"]
    assert (kept["message"], kept["type"]) == ("Ask about elms.", SELF_NOTIFY)
    assert kept["delivered_at"] is not None


async def test_a_note_for_a_tool_waits_over_a_crash(client: Client, script: Script) -> None:
    """Killed between the note and its moment: the run that goes on tells it then, and once."""

    def answer(asked: Asked) -> Reply:
        return (
            calls(note("Mind the list.", deliver_at="tool:vault_list")),
            calls(Call("vault_read", {"path": "oak.md"}), texts=("x",), hold=0),
            calls(Call("vault_list")),
            says("Done."),
        )[asked.round]

    script.will_by(answer)
    run_id = await client.begin("Remember.")
    await script.reached(2)
    await client.up.begin_again()
    script.release()
    chunks = await client.followed(run_id)
    assert text_of(chunks) == "x\n\nDone."
    assert said(chunks, "self_notify") == ["Mind the list."]
    by_round = {asked.round: "Mind the list." in asked.notices for asked in script.asked}
    assert by_round == {0: False, 1: False, 2: False, 3: True}


async def test_a_condition(client: Client, script: Script) -> None:
    """A note may wait for an event, in CEL; one that is none is explained to the model."""
    script.will(
        calls(note("x", deliver_at="when:event.")),
        calls(note("It failed.", deliver_at='when:event.type == "tool.call.failure"')),
        calls(Call("vault_list")),
        calls(*missing("none")),
        says("Done."),
    )
    chunks = await client.streamed("Remember.")
    assert script.asked[1].results[0].startswith("Error: ")
    assert [("It failed." in asked.notices) for asked in script.asked] == [
        False, False, False, False, True,
    ]  # fmt: skip
    assert said(chunks, "self_notify") == ["It failed."]


async def test_a_subscriber_of_ones_own(own: Client, script: Script) -> None:
    """A file in the folder is heard within a second or so; a bad one is reported, others work."""
    folder = own.up.home.data / "subscribers"
    folder.mkdir(parents=True)
    await own.up.begin()
    (folder / "bad.toml").write_text('[subscriber]\nid = "bad"\n[events]\ntypes = ["nothing.here"]')
    (folder / "reads.toml").write_text(
        '[subscriber]\nid = "reads"\n[events]\ntypes = ["tool.call.success"]\n'
        'filter = \'payload.tool == "vault_read"\'\n[output]\ninject_at = "after_tool"\n'
        'template = "{{ payload.tool }} has read."\n'
    )

    async def listed() -> Any:
        found = await own.get("/api/subscribers")
        ids = [each["id"] for each in found["subscribers"]]
        return found if "reads" in ids and found["problems"] else None

    found = await until_found(listed, "the new subscriber")
    assert "bad" not in [each["id"] for each in found["subscribers"]]
    assert len(found["problems"]) >= 1
    assert all("bad.toml" in problem for problem in found["problems"])
    script.will(calls(Call("vault_read", {"path": "oak.md"}), Call("vault_list")), says("Read."))
    chunks = await own.streamed("Read it.")
    assert said(chunks, "reads") == ["vault_read has read."]
    assert script.asked[1].notices == ["vault_read has read."]
