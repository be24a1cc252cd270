"""Calls that wait for a person: asked on the stream, decided from anywhere, over a kill."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.fork_server import run_dodona
from tests.system.client import Chunk, Chunks, Client, kept, of_type, text_of
from tests.system.dodona_up import Home
from tests.system.waiting import LIMIT, until
from tests.system.wire_model import Call, Script, WireModel, calls, says

ASK = """
[rule]
id = "ask-before-writing"
trigger = "on_tool_call"
condition = 'context.event.payload.tool == "vault_write"'
[action]
kind = "require_approval"
reason = "{{ context.event.payload.tool }} changes {{ context.event.payload.arguments.path }}."
"""
WRITE = calls(Call("vault_write", {"path": "new.md", "content": "# New\n"}, id="write-1"))
REASON = "vault_write changes new.md."


def write_rule(home: Home, name: str, text: str) -> Path:
    folder = home.data / "rules"
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}.toml"
    file.write_text(text)
    return file


@pytest.fixture
async def asking(own: Client) -> Client:
    """A client of a gateway that asks before notes are written."""
    write_rule(own.up.home, "ask", ASK)
    await own.up.begin()
    return own


async def pending(client: Client) -> list[dict[str, Any]]:
    return (await client.get("/api/approvals"))["approvals"]


def note(client: Client) -> Path:
    return client.up.home.vault / "new.md"


async def asked(client: Client, chunks: Chunks) -> Chunk:
    """What the stream asks, which is also what is listed."""
    chunk = await chunks.until("approval")
    (listed,) = await pending(client)
    assert (listed["run_id"], listed["call"]) == (chunks.run_id, chunk["approval"])
    assert (listed["tool"], listed["reason"]) == ("vault_write", REASON)
    assert listed["arguments"] == {"path": "new.md", "content": "# New\n"}
    assert listed["decision"] == "pending"
    return chunk


def place(chunk: Chunk, run_id: int) -> str:
    return f"/api/runs/{run_id}/approvals/{chunk['approval']}"


@pytest.mark.parametrize("approved", [True, False])
async def test_a_person_decides(asking: Client, script: Script, approved: bool) -> None:  # noqa: FBT001
    """The chunk says what is asked; then the call is made, or the model reads the refusal."""
    script.will(WRITE, says("Done."))
    async with asking.stream("Write it.") as stream:
        chunk = await asked(asking, stream)
        assert (chunk["name"], chunk["reason"]) == ("vault_write", REASON)
        assert not note(asking).exists()
        body = {"approved": approved, "note": "" if approved else "Not there."}
        decided = await asking.send("POST", place(chunk, stream.run_id), body)
        assert decided.status == 200, decided.text
        assert decided.json["decision"] == ("approved" if approved else "denied")
        chunks = await stream.rest()
    assert text_of(chunks) == "Done."
    assert note(asking).exists() is approved
    (told,) = script.asked[1].results
    if not approved:
        assert told == (
            "Error: vault_write was not called: the user denied it. Their note: Not there."
        )
    assert await pending(asking) == []
    again = await asking.send("POST", place(chunk, stream.run_id), {"approved": not approved})
    assert again.status == 409
    assert again.error["hint"] == "A decision is final."


@pytest.mark.parametrize("when", ["before", "after"])
async def test_killed_while_it_waits(asking: Client, script: Script, when: str) -> None:
    """With -9; decided by the command while nobody is there, or after the start: it goes on."""
    script.will(WRITE, says("Done."))
    async with asking.stream("Write it.") as stream:
        chunk = await asked(asking, stream)
        asking.up.kill()
    if when == "before":
        said = await approve(asking, str(stream.run_id), chunk["approval"])
        assert said == f"vault_write of run {stream.run_id} is approved.\n"
        await asking.up.begin()
    else:
        await asking.up.begin()
        (listed,) = await pending(asking)
        assert listed["call"] == chunk["approval"]
        assert not note(asking).exists()
        assert (
            await asking.send("POST", place(chunk, stream.run_id), {"approved": True})
        ).status == 200
    run = await asking.ended(stream.run_id)
    assert (run["status"], run["answer"]) == ("succeeded", "Done.")
    assert note(asking).read_text() == "# New\n"
    assert [each.round for each in script.asked] == [0, 1], "no request was made twice"
    shown = kept(await asking.followed(stream.run_id))
    assert len(of_type(shown, "approval")) == 1
    assert [each["status"] for each in of_type(shown, "tool_result")] == ["success"]


async def approve(client: Client, *arguments: str) -> str:
    """What `dodona approve` says, in a process of its own on the same store."""

    def run() -> str:
        home = client.up.home
        done = run_dodona(
            "approve", *arguments, cwd=home.folder, env=home.environment, timeout=LIMIT
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return await asyncio.to_thread(run)


async def test_another_process_decides(asking: Client, script: Script) -> None:
    """`dodona approve` lists what waits and decides it; the gateway's run goes on."""
    script.will(WRITE, says("Done."))
    async with asking.stream("Write it.") as stream:
        chunk = await asked(asking, stream)
        (listed,) = json.loads(await approve(asking, "--json"))["approvals"]
        assert listed["call"] == chunk["approval"]
        await approve(asking, str(stream.run_id), "--deny", "--note", "No.")
        chunks = await stream.rest()
    assert text_of(chunks) == "Done."
    assert not note(asking).exists()
    assert script.asked[1].results == [
        "Error: vault_write was not called: the user denied it. Their note: No."
    ]
    assert await approve(asking) == "No pending approvals.\n"


async def test_nobody_in_time(own: Client, script: Script, wire: WireModel) -> None:
    """A timeout denies, and the run goes on."""
    own.up.home.write(base_url=wire.url, more="[approvals]\ntimeout_seconds = 0.5")
    write_rule(own.up.home, "ask", ASK)
    await own.up.begin()
    script.will(WRITE, says("Nobody was there."))
    chunks = await own.streamed("Write it.")
    assert text_of(chunks) == "Nobody was there."
    assert script.asked[1].results == [
        f"Error: vault_write was not called: the approval expired. {REASON}"
    ]
    assert of_type(chunks, "system") == [], "no limit was near"
    assert not note(own).exists()
    assert await pending(own) == []


async def test_cancelled_while_it_waits(asking: Client, script: Script) -> None:
    """The run ends, nothing waits any more, and a decision that comes later is refused."""
    script.will(WRITE, says("Never said."))
    async with asking.stream("Write it.") as stream:
        chunk = await asked(asking, stream)
        await asking.cancel(run_id=stream.run_id)
        chunks = await stream.rest()
    assert chunks[-1]["error"]["code"] == "cancelled"
    assert await pending(asking) == []
    late = await asking.send("POST", place(chunk, stream.run_id), {"approved": True})
    assert late.status == 409
    assert not note(asking).exists()
    assert len(script.asked) == 1


async def test_nobody_else_decides(asking: Client, script: Script) -> None:
    """Not under another run's number or another call's name; nor for another user's run."""
    script.will(WRITE, says("Done."))
    async with asking.stream("Write it.") as stream:
        chunk = await asked(asking, stream)
        for path in (
            f"/api/runs/{stream.run_id + 1}/approvals/{chunk['approval']}",
            f"/api/runs/{stream.run_id}/approvals/other-1",
        ):
            refused = await asking.send("POST", path, {"approved": True})
            assert refused.status == 404, refused.text
        with asking.up.home.changing() as db:
            db.execute("UPDATE approvals SET user_id = 'somebody-else'")
        assert await pending(asking) == []
        strange = await asking.send("POST", place(chunk, stream.run_id), {"approved": True})
        assert strange.status == 404, strange.text
        with asking.up.home.changing() as db:
            db.execute("UPDATE approvals SET user_id = 'local'")
        assert not note(asking).exists()
        await asking.send("POST", place(chunk, stream.run_id), {"approved": False})
        await stream.rest()
    assert not note(asking).exists()


async def test_a_wrong_decision(asking: Client, script: Script) -> None:
    """Every mistake is told at once, and nothing is decided."""
    script.will(WRITE, says("Done."))
    async with asking.stream("Write it.") as stream:
        chunk = await asked(asking, stream)
        wrong = await asking.send(
            "POST", place(chunk, stream.run_id), {"approved": "yes", "nte": "x"}
        )
        assert wrong.status == 400
        assert "there is no field 'nte'." in wrong.text
        assert "approved must be true or false (got" in wrong.text
        assert len(await pending(asking)) == 1
        await asking.send("POST", place(chunk, stream.run_id), {"approved": True})
        await stream.rest()
    await until(note(asking).exists, "the note")


async def test_several_wait_at_once(asking: Client, script: Script) -> None:
    """Calls of one turn wait side by side; each is decided by itself, in any order."""
    paths = ("a.md", "b.md", "c.md")
    script.will(
        calls(*(Call("vault_write", {"path": p, "content": "x"}, id="same") for p in paths)),
        says("Done."),
    )
    async with asking.stream("Write them.") as stream:
        for _ in paths:
            await stream.until("approval")
        waiting = {each["arguments"]["path"]: each["call"] for each in await pending(asking)}
        assert sorted(waiting) == list(paths)
        for path in reversed(paths):
            where = f"/api/runs/{stream.run_id}/approvals/{waiting[path]}"
            decided = await asking.send("POST", where, {"approved": path != "b.md"})
            assert decided.status == 200, decided.text
        await stream.rest()
    vault = asking.up.home.vault
    assert [(vault / path).exists() for path in paths] == [True, False, True]


async def test_a_rule_denies(own: Client, script: Script) -> None:
    """The tool is not called; the model reads the reason, and others are called."""
    denied = ASK.replace('kind = "require_approval"', 'kind = "deny"')
    write_rule(own.up.home, "deny", denied)
    await own.up.begin()
    script.will(
        calls(*WRITE.calls, Call("vault_read", {"path": "oak.md"})), says("I may not write.")
    )
    chunks = await own.streamed("Write it.")
    refused, read = script.asked[1].results
    assert refused == f"Error: vault_write was denied: {REASON}"
    assert "spoke through its leaves" in read
    assert of_type(chunks, "approval") == []
    assert not note(own).exists()
