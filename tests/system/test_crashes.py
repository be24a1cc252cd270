"""Killed with -9 at any moment, and started again: the run goes on by itself, and ends once."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

from tests.system.client import Client, kept, of_type, text_of, types
from tests.system.waiting import until, until_found
from tests.system.wire_model import Asked, Call, Reply, Script, calls, says

MILLION = 1_000_000


def saved(client: Client, run_id: int) -> list[tuple[str, str]]:
    """The messages of a run."""
    rows = client.up.home.rows(
        "SELECT role, content FROM messages WHERE run_id = ? ORDER BY id", run_id
    )
    return [(row["role"], row["content"]) for row in rows]


def rounds(script: Script) -> list[int]:
    """Which turns the model was asked for, in the order in which it was."""
    return [asked.round for asked in script.asked]


async def test_during_a_model_call(client: Client, script: Script) -> None:
    """The call is made again; a client that comes back gets `restart` and the whole answer."""
    script.will(says("Half and ", "the other half.", hold=1))
    async with client.stream("What is the answer?") as chunks:
        await chunks.until("content")
        before, run_id = chunks.seen, chunks.run_id
        await client.up.begin_again()
    script.release()
    after = await client.followed(run_id, before[-1]["seq"])
    assert text_of([*before, *after]) == "Half and the other half."
    restarts = of_type(after, "restart")
    assert len(restarts) == 1, after
    assert restarts[0]["discard_after"] < of_type(before, "content")[0]["seq"]
    assert types(after)[-1] == "done"
    seqs = [chunk["seq"] for chunk in [*before, *after]]
    assert seqs == sorted(set(seqs))
    assert before[-1]["seq"] < 2 * MILLION < after[0]["seq"]
    assert len(script.asked) == 2
    assert (await client.run(run_id))["status"] == "succeeded"
    assert [role for role, _ in saved(client, run_id)] == ["user", "assistant"]
    assert saved(client, run_id)[1][1] == "Half and the other half."


async def test_what_a_cut_call_may_have_cost_is_recorded(client: Client, script: Script) -> None:
    """A call that a crash cut is recorded as estimated, beside the one that was made instead."""
    script.will(says("Half and ", "half.", hold=1, usage=(70, 7)))
    async with client.stream("What is the answer?") as chunks:
        await chunks.until("content")
        await client.up.begin_again()
    script.release()
    await client.ended(chunks.run_id)
    records = client.up.home.rows(
        "SELECT input_tokens, output_tokens, estimated FROM token_records WHERE run_id = ?",
        chunks.run_id,
    )
    assert sorted(bool(record["estimated"]) for record in records) == [False, True]
    (exact,) = [record for record in records if not record["estimated"]]
    assert (exact["input_tokens"], exact["output_tokens"]) == (70, 7)
    held = client.up.home.rows(
        "SELECT * FROM reservations WHERE status = 'held' AND run_id = ?", chunks.run_id
    )
    assert held == []


async def index_of(client: Client, script: Script) -> Path:
    """The index of the project's vault, once it is there."""
    home = client.up.home
    before = set(home.indexes())
    script.will(calls(Call("vault_list")), says("There is an index now."))
    await client.ask("Which notes are there?")
    script.asked.clear()
    (index,) = set(home.indexes()) - before
    return index


def write_pigeons(vault: Path) -> None:
    (vault / "pigeons.md").write_text("# Pigeons\n\nTwo pigeons founded the oracle.\n")


async def test_during_a_tool(client: Client, script: Script, vault: Path) -> None:
    """A tool without effect runs again; its call is shown once, and the exchange saved once."""
    index = await index_of(client, script)
    script.will(calls(Call("vault_search", {"query": "pigeons"}), hold=0), says("Two pigeons."))
    async with client.stream("Who founded it?") as chunks:
        await script.reached()
        with client.up.home.locked(index):
            write_pigeons(vault)
            await until_found(client.search_waits, "the change noticed")
            script.release()
            await chunks.until("tool_call")
            client.up.kill()
    assert of_type(chunks.seen, "tool_result") == []
    await client.up.begin()
    rest = await client.followed(chunks.run_id, chunks.seen[-1]["seq"])
    shown = kept([*chunks.seen, *rest])
    assert text_of(shown) == "Two pigeons."
    assert len(of_type(shown, "tool_call")) == 1
    assert ["pigeons.md" in each["result"] for each in of_type(shown, "tool_result")] == [True]
    assert [role for role, _ in saved(client, chunks.run_id)] == ["user", "assistant"]


async def test_a_whole_answer_is_kept_while_its_tools_work(
    client: Client, script: Script, vault: Path
) -> None:
    """What the model has said to its end is not asked for again, however long a tool takes."""
    index = await index_of(client, script)
    script.will(calls(Call("vault_search", {"query": "pigeons"}), hold=0), says("Two pigeons."))
    async with client.stream("Who founded it?") as chunks:
        await script.reached()
        with client.up.home.locked(index):
            write_pigeons(vault)
            await until_found(client.search_waits, "the change noticed")
            script.release()
            await chunks.until("tool_call")
            result = asyncio.create_task(chunks.until("tool_result"))
            await until(
                lambda: result.done() or has_model_step(client, chunks.run_id), "the answer kept"
            )
            client.up.kill()
            kept_in_time = not result.done()
            result.cancel()
            await asyncio.gather(result, return_exceptions=True)
    await client.up.begin()
    await client.ended(chunks.run_id)
    assert kept_in_time, "the answer was not in the journal before the tool had ended"
    assert rounds(script) == [0, 1]


def has_model_step(client: Client, run_id: int) -> bool:
    """Is an answer of the model durable?"""
    found = client.up.home.rows(
        "SELECT key FROM steps WHERE run_id = ? AND leaf = 'llm-call' AND status = 'succeeded'",
        run_id,
    )
    return bool(found)


async def test_a_client_that_comes_back_after_the_end(client: Client, script: Script) -> None:
    """It is told to drop what it saw of the first attempt, though the run is over."""
    script.will(says("Half and ", "half.", hold=1))
    async with client.stream("What is the answer?") as chunks:
        await chunks.until("content")
        await client.up.begin_again()
    script.release()
    await client.ended(chunks.run_id)
    rest = await client.followed(chunks.run_id, chunks.seen[-1]["seq"])
    assert of_type(rest, "restart")
    assert text_of([*chunks.seen, *rest]) == "Half and half."


async def test_between_a_tool_and_the_next_call(
    client: Client, script: Script, vault: Path
) -> None:
    """A tool whose result was kept does not run again: its effect would come back."""
    script.will(
        calls(Call("vault_write", {"path": "new.md", "content": "# New\n\nWritten once.\n"})),
        says("Written.", hold=0),
    )
    run_id = await client.begin("Write a note.")
    await script.reached(2)
    note = vault / "new.md"
    assert note.read_text() == "# New\n\nWritten once.\n"
    client.up.kill()
    note.unlink()
    await client.up.begin()
    script.release()
    assert (await client.ended(run_id))["status"] == "succeeded"
    assert not note.exists()
    assert rounds(script) == [0, 1, 1]
    assert script.asked[1].body == script.asked[2].body, "the same request, byte for byte"
    chunks = await client.followed(run_id)
    assert text_of(chunks) == "Written."
    assert len(of_type(kept(chunks), "tool_result")) == 1


async def test_as_soon_as_an_effect_is_seen(client: Client, script: Script, vault: Path) -> None:
    """A keyed effect that was cut is done again, under the same key, to the same end."""
    script.will(
        calls(Call("vault_write", {"path": "new.md", "content": "# New\n\nOne text.\n"})),
        says("Written."),
    )
    run_id = await client.begin("Write a note.")
    note = vault / "new.md"
    await until(note.exists, "the note")
    await client.up.begin_again()
    assert (await client.ended(run_id))["answer"] == "Written."
    assert note.read_text() == "# New\n\nOne text.\n"
    assert rounds(script).count(0) == 1
    assert [role for role, _ in saved(client, run_id)] == ["user", "assistant"]


async def test_with_a_question_in_the_queue(client: Client, script: Script) -> None:
    """A question that was accepted is answered, also one that had not begun; the order stays."""
    script.will(says("Answered.", hold=0))
    first = await client.begin("The first?")
    await script.reached(1)
    second = asyncio.create_task(client.try_to_ask("The second?"))

    async def both() -> list[int]:
        ids = [run["id"] for run in await client.runs()]
        return ids[::-1] if len(ids) == 2 else []

    ids = await until_found(both, "the second question")
    assert ids[0] == first
    client.up.kill()
    await asyncio.gather(second, return_exceptions=True)
    await client.up.begin()
    script.release()
    for run_id in ids:
        await client.ended(run_id)
    assert ["second" in asked.question for asked in script.asked] == [False, False, True]
    assert [len(saved(client, run_id)) for run_id in ids] == [2, 2]
    (row,) = client.up.home.rows("SELECT parent_id FROM runs WHERE id = ?", ids[1])
    assert row["parent_id"] == first


async def test_after_the_end(client: Client, script: Script) -> None:
    """What was acknowledged has happened: nothing is asked again, and the stream replays."""
    script.will(calls(Call("vault_read", {"path": "oak.md"})), says("By ", "leaves."))
    chunks = await client.streamed("How did the oak speak?")
    await client.up.begin_again()
    run_id = chunks[0]["run_id"]
    replayed = await client.followed(run_id)
    assert text_of(replayed) == "By leaves."
    assert types(replayed)[-1] == "done"
    assert replayed[-1] == chunks[-1]
    assert await client.followed(run_id, replayed[-2]["seq"]) == replayed[-1:]
    assert len(script.asked) == 2
    run = await client.run(run_id)
    assert (run["status"], run["attempt"]) == ("succeeded", 1)


async def test_a_run_keeps_the_prompt_it_began_with(
    client: Client, script: Script, vault: Path
) -> None:
    """An edit that comes between two attempts is for the next run."""
    prompt = vault / ".dodona" / "prompts" / "oracle.md"
    prompt.parent.mkdir(parents=True)
    prompt.write_text("You are the first prompt.")
    script.will(says("Answered.", hold=0))
    run_id = await client.begin("Who are you?")
    await script.reached(1)
    client.up.kill()
    prompt.write_text("You are the second prompt.")
    await client.up.begin()
    script.release()
    await client.ended(run_id)
    await client.ask("And now?")
    told = [asked.messages[0]["content"] for asked in script.asked]
    assert ["the first prompt" in text for text in told] == [True, True, False]
    assert "the second prompt" in told[2]


TIMES = (
    ("runs", "id", ("created_at", "started_at")),
    ("messages", "run_id", ("created_at",)),
    ("steps", "run_id", ("started_at", "ended_at")),
    ("reservations", "run_id", ("created_at",)),
)


async def test_the_clock_stands_still_while_nobody_is_there(client: Client, script: Script) -> None:
    """A run that lay for longer than its time limit still has its time when it is resumed."""
    script.will(calls(Call("vault_list")), says("Answered.", hold=0))
    run_id = await client.begin("How long?")
    await script.reached(2)
    client.up.kill()
    with client.up.home.changing() as db:
        for table, key, columns in TIMES:
            earlier = ", ".join(f"{column} = {column} - 9000" for column in columns)
            db.execute(f"UPDATE {table} SET {earlier} WHERE {key} = ?", (run_id,))  # noqa: S608
    await client.up.begin()
    script.release()
    run = await client.ended(run_id)
    assert (run["status"], run["answer"]) == ("succeeded", "Answered.")


async def test_again_and_again(client: Client, script: Script, vault: Path) -> None:
    """However often, at whatever moment: the run ends, its exchange is there once."""
    chance = random.Random(4)  # noqa: S311 - no secret

    def answer(asked: Asked) -> Reply:
        if asked.round == 3:
            return says(*"All three are written.", every=0.01)
        made = {"path": f"note-{asked.round}.md", "content": f"# Note {asked.round}\n"}
        return calls(Call("vault_write", made))

    script.will_by(answer)
    run_id = await client.begin("Write three notes.")
    for _ in range(3):
        await asyncio.sleep(chance.uniform(0, 0.1))  # no wait for anything: a moment like any other
        await client.up.begin_again()
    run = await client.ended(run_id)
    assert (run["status"], run["answer"]) == ("succeeded", "All three are written.")
    for number in range(3):
        assert (vault / f"note-{number}.md").read_text() == f"# Note {number}\n"
    assert [role for role, _ in saved(client, run_id)] == ["user", "assistant"]
    chunks = await client.followed(run_id)
    assert text_of(chunks) == "All three are written."
    assert [each["status"] for each in of_type(kept(chunks), "tool_result")] == ["success"] * 3
    assert len(script.asked) <= 4 + 3, "each kill costs one request at most"
