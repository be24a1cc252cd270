"""The Librarian over HTTP: its tools, its chunks, its cost, its end, and what it moved undone."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.fork_server import run_dodona
from tests.system.client import Client, kept, notices, of_type, text_of
from tests.system.dodona_up import Up
from tests.system.waiting import until
from tests.system.wire_model import Answers, Asked, Call, Reply, Script, calls, says

ITS_TOOLS = {"vault_read", "vault_write", "vault_list", "vault_move", "vault_create_index"}
MOVE = Call("vault_move", {"path": "oak.md", "to": "trees/oak.md"})


def is_librarian(asked: Asked) -> bool:
    return str(asked.messages[0]["content"]).startswith("You are the Librarian")


def sending(script: Script, librarian: Answers, *, then: str = "It is done.") -> Answers:
    """A model that hands a task to the Librarian, and reports; both are this one."""

    def answers(asked: Asked) -> Reply:
        if is_librarian(asked):
            return librarian(asked)
        task = Call("delegate_librarian", {"task": f"Put the notes in order. {script.tag}"})
        return calls(task) if asked.round == 0 else says(then)

    return answers


def in_turn(*replies: Reply) -> Answers:
    return lambda asked: replies[min(asked.round, len(replies) - 1)]


def its(script: Script) -> list[Asked]:
    return [asked for asked in script.asked if is_librarian(asked)]


async def test_its_tools_and_its_chunks(client: Client, script: Script, vault: Path) -> None:
    """It is offered its own tools only; its calls are shown under its name, its words are not."""
    listed = calls(Call("vault_list"), texts=("Let me see. ",))
    refused = calls(Call("vault_search", {"query": "oak"}))
    script.will_by(sending(script, in_turn(listed, refused, calls(MOVE), says("Moved it."))))
    chunks = await client.streamed("Put the notes in order.")
    for asked in its(script):
        assert {tool["function"]["name"] for tool in asked.json["tools"]} == ITS_TOOLS
        assert asked.question.startswith("Put the notes in order."), "the task is all it is told"
    by = [(each["name"], each.get("agent")) for each in of_type(chunks, "tool_call")]
    assert by == [
        ("delegate_librarian", None),
        *((name, "librarian") for name in ("vault_list", "vault_search", "vault_move")),
    ]
    assert "There is no tool 'vault_search' here." in its(script)[2].results[-1]
    assert text_of(chunks) == "It is done."
    assert (vault / "trees" / "oak.md").is_file()
    assert script.asked[-1].results == ["Moved it."]
    steps = client.up.home.rows(
        "SELECT key FROM steps WHERE run_id = ? AND key LIKE '%/delegate/%' AND leaf = ?",
        *(chunks[0]["run_id"], "tools.execute"),
    )
    assert len(steps) == 3, "its calls are in the journal of the run"


async def test_its_tokens_are_the_runs(client: Client, script: Script) -> None:
    """They count in what the run says that it used, and the run ends where its budget does."""
    await client.set(token_budget=1000)
    work = [calls(Call("vault_list", {}), usage=(300, 100)), says("Listed.", usage=(500, 100))]
    script.will_by(sending(script, in_turn(*work), then="Never said."))
    chunks = await client.streamed("Put the notes in order.")
    assert [is_librarian(asked) for asked in script.asked] == [False, True, True]
    (reached,) = notices(chunks, "limit_reached")
    assert reached["metadata"]["limit"] == "tokens"
    assert chunks[-1]["tokens_used"] == 110 + 400 + 600


async def test_cancelling_stops_it(client: Client, script: Script, vault: Path) -> None:
    """Its request is closed and its report is dropped; what it had moved stays moved."""
    script.will_by(sending(script, in_turn(calls(MOVE), says("Half a rep", "ort.", hold=1))))
    async with client.stream("Put the notes in order.") as chunks:
        await chunks.until("tool_result", lambda chunk: chunk.get("agent") == "librarian")
        await script.reached(3)
        await client.cancel(run_id=chunks.run_id)
        await chunks.rest()
    await until(lambda: script.asked[2].left, "the end of its connection to the model")
    run = await client.ended(chunks.run_id)
    assert run["status"] == "cancelled"
    assert "Half a rep" not in str(run["messages"])
    assert (vault / "trees" / "oak.md").is_file()
    script.will(says("Yes."))
    await client.ask("Did you stop?")
    assert "Half a rep" not in str(script.asked[-1].messages)


async def test_killed_in_its_errand(client: Client, script: Script, vault: Path) -> None:
    """With -9: what it had done is not done again, neither by its tools nor by its model."""
    write = Call("vault_write", {"path": "log.md", "content": "# Log\n"})
    work = in_turn(calls(MOVE), calls(write), says("Half ", "a report.", hold=1))
    script.will_by(sending(script, work))
    async with client.stream("Put the notes in order.") as chunks:
        await script.reached(4)
        await chunks.until("tool_result", lambda chunk: chunk["name"] == "vault_write")
        (vault / "log.md").write_text("# Log\n\nOf somebody else.\n")
        await client.up.begin_again()
    script.release()
    rest = await client.followed(chunks.run_id, chunks.seen[-1]["seq"])
    shown = kept([*chunks.seen, *rest])
    assert text_of(shown) == "It is done."
    assert [each["name"] for each in of_type(shown, "tool_call")] == [
        *("delegate_librarian", "vault_move", "vault_write")
    ]
    assert [asked.round for asked in its(script)] == [0, 1, 2, 2]
    assert (vault / "log.md").read_text() == "# Log\n\nOf somebody else.\n"
    moves = await client.get("/api/vault/moves", params={"project_id": client.project})
    assert len(moves["moves"]) == 1
    assert script.asked[-1].results == ["Half a report."]


async def test_a_move_of_its_is_undone(own: Client, script: Script) -> None:
    """By `dodona vault undo`, beside the gateway: the note is back, and so are the links to it."""
    vault = own.up.home.vault
    index, text = vault / "index.md", "# Index\n\nThe [[travel/delphi|road]].\n"
    index.write_text(text)
    await own.up.begin()
    move = Call("vault_move", {"path": "travel/delphi.md", "to": "roads/north.md"})
    script.will_by(sending(script, in_turn(calls(move), says("Moved."))))
    await own.ask("Put the notes in order.")
    assert not (vault / "travel" / "delphi.md").exists()
    assert "north|road]]" in index.read_text()
    said = await asyncio.to_thread(dodona, own.up, "vault", "undo")
    assert "travel/delphi.md" in said
    assert (vault / "travel" / "delphi.md").is_file()
    assert not (vault / "roads" / "north.md").exists()
    assert index.read_text() == text


def dodona(up: Up, *arguments: str) -> str:
    """What a command says in the home of a gateway."""
    ran = run_dodona(*arguments, cwd=up.home.folder, env=up.home.environment, timeout=120)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.mark.parametrize("summarises", [True, False])
async def test_large_results(own: Client, script: Script, *, summarises: bool) -> None:
    """It sums up what is too large for the Oracle to read, unless it was told not to."""
    home = own.up.home
    (home.vault / "long.md").write_text("# Long\n\n" + "The acorns are counted again. " * 1500)
    if not summarises:
        home.config.write_text(f"{home.config.read_text()}[librarian]\nsummarise = false\n")
    await own.up.begin()
    read = Call("vault_read", {"path": "long.md"})
    script.will_by(
        lambda asked: (
            says("Only acorns, counted.")
            if is_librarian(asked)
            else (calls(read) if asked.round == 0 else says("Acorns."))
        )
    )
    chunks = await own.streamed("What is in the long note?")
    (result,) = of_type(chunks, "tool_result")
    assert "acorns are counted" in result["result"], "the user is shown what there is"
    (heard,) = script.asked[-1].results
    assert ("acorns are counted" in heard) is not summarises
    assert len(its(script)) == (1 if summarises else 0)
    if summarises:
        assert heard.endswith("Only acorns, counted.")
        assert its(script)[0].json.get("tools", []) == []
        assert "What is in the long note?" in its(script)[0].question
