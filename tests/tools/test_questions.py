"""The embedded default with search_passages, on the sample vault."""

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
from dodona.tools.code import NoCode
from dodona.tools.passages import add_passage_tool
from dodona.tools.registry import ToolRegistry
from dodona.tools.vault import MarkedBlocks, NoteHistory, ProjectNotes, Vault, add_vault_tools

HERE = Path(__file__).parent
SAMPLE = HERE.parent.parent / "examples" / "vault"
NOTHING = "Nothing in this project answers the question."
QUOTED = re.compile(r"^— `([^`]+)`, lines? \d+", re.MULTILINE)
NAMED = re.compile(r"^- .* — `([^`]+)`", re.MULTILINE)


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

        async def code_of(_user_id: str, _project_id: str) -> NoCode:
            return NoCode()

        registry = ToolRegistry()
        add_vault_tools(registry, notes_of)
        add_passage_tool(registry, notes_of, code_of, store.threads)
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


async def test_the_right_notes_are_shown(tools: ToolRegistry) -> None:
    """Quoted in at least eight of ten questions about one note, and named in nine of ten."""
    asked = [question for question in questions() if len(question.notes) == 1]
    answers = {question.ask: await answer(tools, question.ask) for question in asked}
    late = {q.ask for q in asked if not q.notes & set(QUOTED.findall(answers[q.ask]))}
    missed = {q.ask for q in asked if not q.notes & shown(answers[q.ask])}
    assert len(late) <= len(asked) // 5, late
    assert len(missed) <= len(asked) // 10, missed


async def test_a_question_about_two_notes_shows_both(tools: ToolRegistry) -> None:
    """One is quoted, the other is quoted or named, in most such questions."""
    asked = [question for question in questions() if len(question.notes) == 2]
    missed = {q.ask for q in asked if not q.notes <= shown(await answer(tools, q.ask))}
    assert len(missed) <= len(asked) // 2, missed


def shown(text: str) -> set[str]:
    return {*QUOTED.findall(text), *NAMED.findall(text)}


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
