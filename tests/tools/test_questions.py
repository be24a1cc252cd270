"""The model that is none, with the tools of the vault, on the vault that is shipped."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from dodona.core.messages import AssistantText, Message, ToolCall, UserText
from dodona.core.ports.model import Done, ModelRequest
from dodona.core.ports.tools import ToolContext
from dodona.models.extractive.model import ExtractiveModel
from dodona.store import Store
from dodona.tools.call import call_tool
from dodona.tools.registry import ToolRegistry
from dodona.tools.vault import MarkedBlocks, NoteHistory, ProjectNotes, Vault, add_vault_tools

HERE = Path(__file__).parent
SAMPLE = HERE.parent.parent / "examples" / "vault"
NOTHING = "Nothing relevant to the question was found."
CITED = re.compile(r"^— `\w+` · `([^`]+)`, lines? \d+", re.MULTILINE)


@dataclass(frozen=True)
class Question:
    ask: str
    notes: frozenset[str]


def questions() -> list[Question]:
    found = tomllib.loads((HERE / "questions.toml").read_text())["question"]
    return [Question(each["ask"], frozenset(each["notes"])) for each in found]


@pytest.fixture
async def tools(tmp_path: Path) -> AsyncIterator[ToolRegistry]:
    async with await Store.open(str(tmp_path / "store.db"), redact=str) as store:
        vault = Vault(SAMPLE, tmp_path / "index.db")
        notes = ProjectNotes(
            vault,
            MarkedBlocks(store.note_marks, "ada", "vault"),
            NoteHistory(store.note_versions, "ada", "one"),
        )

        async def notes_of(_user_id: str, _project_id: str) -> ProjectNotes:
            return notes

        registry = ToolRegistry()
        add_vault_tools(registry, notes_of)
        yield registry


async def answer(tools: ToolRegistry, question: str) -> str:
    """The answer of the oracle, as a loop that only a test may have."""
    model, history = ExtractiveModel(), list[Message]([UserText(question)])
    while True:
        message = await _said(model, history, tools)
        if not message.calls:
            return message.text
        history.append(message)
        history += [await _result(tools, call) for call in message.calls]


async def _said(
    model: ExtractiveModel, history: list[Message], tools: ToolRegistry
) -> AssistantText:
    async with model.stream(ModelRequest(tuple(history), tools.specs_for("oracle"))) as stream:
        events = [event async for event in stream]
    done = events[-1]
    assert isinstance(done, Done)
    return done.message


async def _result(tools: ToolRegistry, call: ToolCall) -> Message:
    context = ToolContext("local", "default", call.id)
    outcome = await call_tool(tools, call, agent="oracle", context=context)
    assert not outcome.result.failed, outcome.result.text
    return outcome.result


async def test_the_right_notes_are_cited(tools: ToolRegistry) -> None:
    """First, in at least nine of ten questions; those that need two notes cite both."""
    asked = [question for question in questions() if question.notes]
    cited = {q.ask: CITED.findall(await answer(tools, q.ask)) for q in asked}
    missed = {q.ask: cited[q.ask] for q in asked if not q.notes <= set(cited[q.ask])}
    assert len(missed) <= len(asked) // 10, missed
    assert not [q.ask for q in asked if len(q.notes) == 2 and q.ask in missed]
    late = {q.ask: cited[q.ask] for q in asked if cited[q.ask][0] not in q.notes}
    assert len(late) <= len(asked) // 10, late


def test_there_are_forty_questions_about_notes_that_exist() -> None:
    """Thirty about one note, six about two, four about none."""
    counted = Counter(len(question.notes) for question in questions())
    assert counted == {1: 30, 2: 6, 0: 4}
    assert all((SAMPLE / note).is_file() for q in questions() for note in q.notes)


def test_links_between_the_notes_lead_somewhere() -> None:
    """The vault is the first thing that a newcomer clicks through."""
    for note in SAMPLE.rglob("*.md"):
        for link in re.findall(r"\]\(([^)#]+)", note.read_text()):
            assert (note.parent / link).is_file(), f"{note.name}: {link}"
        assert len(note.read_text().splitlines()) <= 60


async def test_what_the_vault_does_not_know_is_not_answered(tools: ToolRegistry) -> None:
    """It says so, and quotes nothing."""
    for question in questions():
        if not question.notes:
            said = await answer(tools, question.ask)
            assert NOTHING in said, said
            assert "\n> " not in said
