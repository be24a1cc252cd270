"""The tree is the program: whoever edits oracle.lisp sees the behaviour change."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

import dodona
from tests.system.client import Chunk, Client, notices, of_type, text_of, types
from tests.system.waiting import until_found
from tests.system.wire_model import Call, Script, WireModel, calls, says

ORACLE = (Path(dodona.__file__).parent / "agent" / "trees" / "oracle.lisp").read_text()

DETECT_LOOP = '(action detect-loop :fn "oracle.detect_loop")'
CITE = '(action cite-sources :fn "oracle.cite_sources")'
LOOP = ":max-iterations (blackboard :max_iterations)"


def edit(client: Client, old: str = "", new: str = "") -> None:
    """Make the tree the shipped one, with a piece of its text replaced."""
    if old:
        assert ORACLE.count(old) == 1, f"the shipped tree has no single {old}"
    (client.up.home.folder / "oracle.lisp").write_text(ORACLE.replace(old, new) if old else ORACLE)


@pytest.fixture
def edited(own: Client, wire: WireModel) -> Client:
    """A client of a gateway, not started yet, whose tree is a copy of the shipped one."""
    edit(own)
    own.up.home.write(base_url=wire.url, agent='tree = "oracle.lisp"')
    return own


async def test_edits_while_it_runs(edited: Client, script: Script) -> None:
    """A run that begins after an edit follows the tree as it is then."""
    await edited.up.begin()

    def streamed() -> Awaitable[list[Chunk]]:
        return edited.streamed("How did the oak speak?", new=True)

    async def until_seen(holds: Callable[[list[Chunk]], bool], what: str) -> list[Chunk]:
        async def find() -> list[Chunk]:
            script.asked.clear()
            chunks = await streamed()
            return chunks if holds(chunks) else []

        return await until_found(find, what)

    looping = [calls(Call("vault_search", {"query": "oak", "limit": n})) for n in (1, 2, 3)]
    script.will(*looping, says("Through its leaves."))
    chunks = await streamed()
    assert len(notices(chunks, "loop_detected")) == 1
    assert [each["path"] for each in of_type(chunks, "source")] == ["oak.md"]

    edit(edited, DETECT_LOOP, "")
    chunks = await until_seen(lambda seen: not of_type(seen, "system"), "no word of a loop")
    assert text_of(chunks) == "Through its leaves."
    assert [asked.notices for asked in script.asked] == [[], [], [], []]

    edit(edited, CITE, "(succeed)")
    chunks = await until_seen(lambda seen: not of_type(seen, "source"), "no sources")
    assert text_of(chunks) == "Through its leaves."
    assert len(notices(chunks, "loop_detected")) == 1

    edit(edited, LOOP, ":max-iterations 2")
    chunks = await until_seen(lambda seen: bool(notices(seen, "limit_reached")), "an earlier end")
    assert len(script.asked) == 2
    assert types(chunks)[-1] == "done"

    edit(edited, "(action begin", "(actoin begin")  # the tree before it stays
    await until_found(lambda: said(edited, "actoin"), "a word of the mistake")
    assert notices(await streamed(), "limit_reached")


async def test_a_tree_counts_questions_across_a_kill(edited: Client, script: Script) -> None:
    """A global key outlives the process; a run that was killed and resumed counts once."""
    edit(
        edited,
        '(action begin :fn "oracle.begin")',
        '(action begin :fn "oracle.begin") (set :asked (+ (blackboard :asked) 1))',
    )
    file = edited.up.home.folder / "oracle.lisp"
    schema = ":blackboard-schema {"
    key = f"{schema} :asked {{:default 0 :scope :global}}"
    file.write_text(file.read_text().replace(schema, key, 1))
    await edited.up.begin()
    script.will(says("Yes."), says("Half and ", "half.", hold=1))
    await edited.ask("Was it an oak?")
    async with edited.stream("Was it tall?") as chunks:
        await chunks.until("content")
        await edited.up.begin_again()
    script.release()
    await edited.ended(chunks.run_id)
    rows = edited.up.home.rows(
        "SELECT user_id, agent_id, key, value_json FROM tree_globals WHERE user_id <> ''"
    )
    assert [(row["key"], row["value_json"]) for row in rows] == [("asked", "2")]


async def said(client: Client, word: str) -> bool:
    return word in client.up.said()


async def test_a_tree_with_a_mistake(edited: Client) -> None:
    """It does not start, and says where the mistake is and what was meant."""
    edit(edited, "(action begin", "(actoin begin")
    with pytest.raises(AssertionError) as refused:
        await edited.up.begin()
    said = str(refused.value)
    assert "oracle.lisp:" in said
    assert "Did you mean 'action'?" in said
    assert "Traceback" not in said
