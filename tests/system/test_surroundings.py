"""What a run finds around it: notes and threads that bear on the question, and what has changed."""

from __future__ import annotations

from pathlib import Path

from tests.system.client import Client, of_type, text_of
from tests.system.dodona_up import make_vault
from tests.system.waiting import until_found
from tests.system.wire_model import Asked, Call, Script, calls, says


def listed(asked: Asked, head: str) -> list[str]:
    """The paths under a heading of what is around, in their order."""
    lines = asked.around.splitlines()
    start = next(at for at, line in enumerate(lines) if line.startswith(head)) + 1
    end = next((at for at, line in enumerate(lines) if at > start and not line), len(lines))
    return [line.split(" ")[0] for line in lines[start:end] if not line.startswith("…")]


async def test_notes_that_bear_on_the_question_come_first(client: Client, script: Script) -> None:
    """They are listed before the question, behind what was said before it."""
    script.will(says("Here."))
    await client.ask("How long is the road to Delphi?")
    await client.ask("What is the budget of a month?")
    first, second = script.asked
    assert listed(first, "Notes of the project")[0] == "travel/delphi.md"
    assert listed(second, "Notes of the project")[0] == "budgets.md"
    assert len(listed(second, "Notes of the project")) == 3
    assert second.messages[-1]["content"].startswith("What is the budget")
    assert second.around in second.messages[-2]["content"]


async def test_the_list_keeps_to_its_size(client: Client, script: Script, vault: Path) -> None:
    """Of many notes some are named, and how many are not; what is sent before it stays the same."""
    script.will(says("Here."))
    await client.ask("Which oaks are there?")
    make_vault(vault, {f"trees/oak-{n}.md": f"# Oak number {n} of the wood\n" for n in range(300)})

    async def many() -> bool:
        await client.ask("Which oaks are there?", new=True)
        return "more." in script.asked[-1].around

    await until_found(many, "a list of many notes")
    before, after = script.asked[0], script.asked[-1]
    assert after.around.splitlines()[-1].startswith("… and ")
    assert 5 < len(listed(after, "Notes of the project")) <= 40
    assert len(after.around) < 4 * 800
    # Tools and prompt, byte for byte: notes come and go, and no cache of a provider's is lost.
    end = before.body.index(b"Notes of the project")
    assert after.body[:end] == before.body[:end]


async def test_threads_that_bear_on_the_question_come_first(client: Client, script: Script) -> None:
    """With the ids by which they are read."""
    for title, content in (("Roads", "Delphi lies north."), ("Money", "Drachmas are counted.")):
        body = {"title": title, "content": content, "project_id": client.project}
        pushed = await client.send("POST", "/api/threads", body)
        assert pushed.status == 201, pushed.text
    script.will(says("Here."))
    await client.ask("How are drachmas counted?")
    await client.ask("Where is Delphi?")
    threads = (await client.get("/api/threads", params={"project_id": client.project}))["threads"]
    ids = {thread["title"]: f"thread:{thread['id']}" for thread in threads}
    orders = [listed(asked, "Threads of the project") for asked in script.asked]
    assert orders == [[ids["Money"], ids["Roads"]], [ids["Roads"], ids["Money"]]]


async def test_a_note_that_has_changed_since(client: Client, script: Script, vault: Path) -> None:
    """An event is raised and the model is told, until it has read the note again."""
    script.will(calls(Call("vault_read", {"path": "oak.md"})), says("Through its leaves."))
    await client.ask("How did the oak speak?")
    script.will(says("As before."))
    await client.ask("And now?")
    assert script.asked[-1].notices == []
    (vault / "oak.md").write_text("# The oak\n\nIt fell silent.\n")
    async with client.events("source.stale") as events:
        await client.ask("Does it still speak?")
        event = await events.next()
    assert event is not None
    assert event["payload"]["path"] == "oak.md"
    (told,) = script.asked[-1].notices
    assert told.startswith(
        "Changed since you read it; read again before you rely on the old content"
    )
    assert "oak.md" in told
    script.will(calls(Call("vault_read", {"path": "oak.md"})), says("It fell silent."))
    await client.ask("Read it again.")
    script.will(says("As I said."))
    await client.ask("And now?")
    assert script.asked[-1].notices == [], "it was read again, and old warnings are not kept"


async def test_the_oracle_keeps_a_thread(client: Client, script: Script) -> None:
    """It pushes under its own name, finds and reads; nobody can push under another's."""
    pushed = {"title": "Oaks", "entry_type": "decision", "content": "We keep the oak."}
    script.will(
        calls(
            Call("thread_push", {**pushed, "author": "user"}),
            Call("thread_push", {**pushed, "entry_type": "rumour"}),
        ),
        calls(Call("thread_push", pushed)),
        calls(Call("thread_seek", {"query": "oak"}), Call("thread_list")),
        says("Noted."),
    )
    chunks = await client.streamed("Note that we keep the oak.")
    results = of_type(chunks, "tool_result")
    assert [each["status"] for each in results] == ["error", "error", *["success"] * 3]
    assert "author" in results[0]["result"]
    assert "decision" in results[1]["result"], "it is told which there are"
    assert text_of(chunks) == "Noted."
    threads = (await client.get("/api/threads", params={"project_id": client.project}))["threads"]
    (thread,) = threads
    assert thread["title"] == "Oaks"
    page = await client.get(f"/api/threads/{thread['id']}", params={"project_id": client.project})
    (entry,) = page["entries"]
    assert (entry["author"], entry["entry_type"]) == ("oracle", "decision")
    assert entry["content"] == "We keep the oak."
    assert f"thread:{thread['id']}" in results[3]["result"]
    context = await client.context()
    assert context["key_decisions"] == ["We keep the oak."]
