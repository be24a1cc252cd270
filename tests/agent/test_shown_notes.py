"""Which lines of a note a model sees: only then it may replace the note."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dodona.agent.run_context.registry import LIBRARIAN
from dodona.core.messages import AssistantText, ToolCall, ToolResult
from dodona.models.scripted.model import ScriptedModel
from dodona.store import Store
from dodona.tools.vault import MarkedBlocks, NoteHistory, ProjectNotes, Vault, add_vault_tools
from dodona.tools.vault.notes.files import version_of
from tests.agent.opening import Tools, opened, until

OAKS = "".join(f"oak {n}\n" for n in range(10))
VERSION = version_of(OAKS.encode())


class NoteTools:
    """The tools of a real vault with the note `oaks.md`."""

    def __init__(self, folder: Path) -> None:
        self.tools = Tools()
        self.root = folder / "notes"
        self.root.mkdir()
        self.write(OAKS)
        self._vault = Vault(self.root, folder / "index.db")
        self._store: Store | None = None
        add_vault_tools(self.tools.registry, self._notes)

    def use(self, store: Store) -> None:
        self._store = store

    async def _notes(self, user_id: str, project_id: str) -> ProjectNotes:
        assert self._store is not None
        marked = MarkedBlocks(self._store.note_marks, user_id, "vault")
        history = NoteHistory(self._store.note_versions, user_id, project_id)
        return ProjectNotes(self._vault, marked, history)

    def write(self, text: str) -> None:
        (self.root / "oaks.md").write_text(text)

    def text(self) -> str:
        return (self.root / "oaks.md").read_text()


def call(name: str, **arguments: Any) -> AssistantText:
    return AssistantText(calls=(ToolCall("call-1", name, json.dumps(arguments)),))


READ = call("vault_read", path="oaks.md")
READ_SOME = call("vault_read", path="oaks.md", first=1, last=4)
READ_REST = call("vault_read", path="oaks.md", first=5)
WRITE = call("vault_write", path="oaks.md", content="Mine.", version=VERSION)


def results_of(model: ScriptedModel) -> list[ToolResult]:
    """The results that the model's last request contains."""
    return [each for each in model.requests[-1].messages if isinstance(each, ToolResult)]


async def test_what_a_model_read_in_an_earlier_run_it_may_replace(
    file: Path, tmp_path: Path
) -> None:
    """The ranges of several reads and of several runs of a conversation add up."""
    notes = NoteTools(tmp_path)
    model = ScriptedModel(
        [*(READ_SOME, WRITE, "First."), *(READ_REST, "Then."), *(WRITE, "Written.")]
    )
    async with opened(file, model, tools=notes.tools) as here:
        notes.use(here.store)
        await here.answered()
        assert "you have not seen all of them in this version: 5-10." in results_of(model)[-1].text
        assert notes.text() == OAKS
        await here.answered()
        await here.answered()
        assert not results_of(model)[-1].failed
    assert notes.text() == "Mine."


async def test_a_read_in_another_conversation_does_not_count(file: Path, tmp_path: Path) -> None:
    """Its model does not see that result."""
    notes = NoteTools(tmp_path)
    model = ScriptedModel([READ, "Read.", WRITE, "Refused."])
    async with opened(file, model, tools=notes.tools) as here:
        notes.use(here.store)
        await here.answered()
        await here.answered(new=True)
        assert results_of(model)[-1].failed
    assert notes.text() == OAKS


async def test_a_read_and_a_write_in_one_turn(file: Path, tmp_path: Path) -> None:
    """The model decides on both before it sees the result of the read."""
    notes = NoteTools(tmp_path)
    both = AssistantText(
        calls=tuple(
            ToolCall(f"call-{number}", *(each.name, each.arguments))
            for number, each in enumerate((*READ.calls, *WRITE.calls))
        )
    )
    model = ScriptedModel([both, "Refused.", WRITE, "Written."])
    async with opened(file, model, tools=notes.tools) as here:
        notes.use(here.store)
        await here.answered()
        assert [each.failed for each in results_of(model)] == [False, True]
        assert notes.text() == OAKS
        await here.answered()
    assert notes.text() == "Mine."


async def test_a_summary_shows_no_lines(file: Path, tmp_path: Path) -> None:
    """The Librarian read the note; the model got a few words about it."""
    notes = NoteTools(tmp_path)
    long = "oak olive ash\n" * 3_000
    notes.write(long)
    write = call("vault_write", path="oaks.md", content="x", version=version_of(long.encode()))
    oracle = ScriptedModel([READ, write, "Refused."], name="oracle")
    librarian = ScriptedModel(["Trees."], name="librarian")
    async with opened(file, oracle, librarian, tools=notes.tools) as here:
        notes.use(here.store)
        await here.set(subagent_model="librarian")
        await here.answered()
        assert "this version: 1-3000." in results_of(oracle)[-1].text
    assert notes.text() == long


async def test_what_a_subagent_read_its_caller_has_not_seen(file: Path, tmp_path: Path) -> None:
    """The report of a subagent is not the note; the subagent itself may replace it."""
    notes = NoteTools(tmp_path)
    delegate = call(LIBRARIAN.delegation_tool.name, task="Read it.")
    oracle = ScriptedModel([delegate, WRITE, delegate, "Done."], name="oracle")
    librarian = ScriptedModel([READ, "Oaks.", READ, WRITE, "Written."], name="librarian")
    async with opened(file, oracle, librarian, tools=notes.tools) as here:
        notes.use(here.store)
        await here.set(subagent_model="librarian")
        await here.answered()
        assert [each.failed for each in results_of(oracle)] == [False, True, False]
        assert not results_of(librarian)[-1].failed
    assert notes.text() == "Mine."


async def test_a_resumed_run_knows_what_was_shown(file: Path, tmp_path: Path) -> None:
    """The read is in the journal, so it is not repeated, and the write is allowed."""
    notes = NoteTools(tmp_path)
    waits = call("once", query="wait")
    first = ScriptedModel([READ, waits])
    async with opened(file, first, tools=notes.tools) as here:
        notes.use(here.store)
        run_id = await here.ask()
        await until(lambda: notes.tools.at_once, "a tool at work")
        await here.agency.engine.shutdown(0)
    then = ScriptedModel([WRITE, "Written."])
    async with opened(file, then, tools=notes.tools) as here:
        notes.use(here.store)
        await here.answer(run_id)
    assert notes.text() == "Mine."
