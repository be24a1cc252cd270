"""search_passages on a vault, code and threads, called as the embedded default calls it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from dodona.core.domain.knowledge.notes import NoteAuthor
from dodona.core.domain.knowledge.threads import NewEntry
from dodona.core.domain.trust import NO_MARKS, Mark, Marks
from dodona.core.messages import Origin, ToolCall
from dodona.core.ports.tools import SourceKind, ToolCallResult, ToolContext
from dodona.store import Store
from dodona.tools.call import call_tool
from dodona.tools.code import IndexedCode, NoCode
from dodona.tools.passages import add_passage_tool
from dodona.tools.registry import ToolRegistry
from dodona.tools.vault import MarkedBlocks, NoteHistory, ProjectNotes, Vault

BUDGETS = """# Budgets

A budget reserves before a call and settles after it.

## A crash

After a crash, the reservation of an interrupted call is charged in full.

| scope | period |
|---|---|
| user | day |

```python
budget = reserve(call)

settle(budget)
```
"""
LONG = "# Garden\n\n" + "\n\n".join(
    f"Paragraph {n} about turnips. " + "More. " * 40 for n in range(30)
)
CODE = '''class Meter:
    """Reserves budgets before calls."""

    def reserve_budget(self, call):
        return call
'''
PAGE = Mark(Origin.WEB, "https://example.org/")


class Project:
    """Ada's project; Bob has another, empty one."""

    def __init__(self, store: Store, folder: Path) -> None:
        self.store = store
        self.code_marks: Marks = NO_MARKS
        for name in ("notes", "code", "bob"):
            (folder / name).mkdir()
        (folder / "notes" / "budgets.md").write_text(BUDGETS)
        (folder / "notes" / "garden.md").write_text(LONG)
        (folder / "notes" / "changelog.md").write_text(
            "# Changelog\n\n- Settle budgets after a crash.\n"
        )
        for name in ("contributing", "trees"):
            (folder / "notes" / name).mkdir()
            (folder / "notes" / name / "olives.md").write_text("# Olives\n\nOlives need sun.\n")
        (folder / "code" / "meter.py").write_text(CODE)
        self.notes = self._notes("ada", folder / "notes")
        self._bob = self._notes("bob", folder / "bob")
        self.code = IndexedCode([folder / "code"], folder / "code.db")
        self.tools = ToolRegistry()
        add_passage_tool(
            self.tools, self._notes_of, self._code_of, store.threads, code_marks=self._marks_of
        )

    def _notes(self, user: str, folder: Path) -> ProjectNotes:
        return ProjectNotes(
            Vault(folder, folder.with_suffix(".db")),
            MarkedBlocks(self.store.note_marks, user, str(folder)),
            NoteHistory(self.store.note_versions, user, str(folder)),
        )

    async def _notes_of(self, user_id: str, _project_id: str) -> ProjectNotes:
        return self.notes if user_id == "ada" else self._bob

    async def _code_of(self, user_id: str, _project_id: str) -> IndexedCode | NoCode:
        return self.code if user_id == "ada" else NoCode()

    async def _marks_of(self, _user_id: str, _project_id: str) -> Marks:
        return self.code_marks

    async def call(self, question: str, *, user: str = "ada", **more: Any) -> ToolCallResult:
        call = ToolCall("1", "search_passages", json.dumps({"question": question, **more}))
        context = ToolContext(user, "default", "run/1")
        outcome = await call_tool(self.tools, call, agent="oracle", context=context)
        assert not outcome.result.failed, outcome.result.text
        return outcome

    async def ask(self, question: str, **more: Any) -> dict[str, Any]:
        return json.loads((await self.call(question, **more)).result.text)


@pytest.fixture
async def project(tmp_path: Path) -> AsyncIterator[Project]:
    async with await Store.open(str(tmp_path / "store.db"), redact=str) as store:
        made = Project(store, tmp_path)
        yield made
        await made.code.close()


async def test_the_best_section_is_returned_whole(project: Project) -> None:
    """With its heading, table and fence, and with its titles as a path."""
    found = await project.ask("What happens to a reservation after a crash?")
    (passage,) = found["passages"]
    assert (passage["kind"], passage["path"]) == ("note", "budgets.md")
    assert passage["title"] == "Budgets > A crash"
    assert passage["text"] == BUDGETS[BUDGETS.index("## A crash") :].rstrip("\n")
    assert (passage["first"], passage["last"]) == (5, 17)
    assert BUDGETS.split("\n")[4] == "## A crash"


async def test_others_are_named(project: Project) -> None:
    """At most three, without their text, and no section twice."""
    found = await project.ask("How do budgets work?")
    titles = [(each["path"], each["title"]) for each in found["see_also"]]
    assert 0 < len(titles) == len(set(titles)) <= 3
    assert all(set(each) == {"path", "first", "last", "title"} for each in found["see_also"])


async def test_a_definition_comes_first_if_it_is_asked_for(project: Project) -> None:
    """Prose comes before code otherwise."""
    prose = await project.ask("How do budgets reserve before calls?")
    assert prose["passages"][0]["kind"] == "note"
    for question in (
        "Where is Meter defined?",
        "Which class reserves budgets?",
        "What is reserve_budget?",
    ):
        (passage,) = (await project.ask(question))["passages"]
        assert (passage["kind"], passage["path"]) == ("code", "meter.py"), question


async def test_threads_are_searched_too(project: Project) -> None:
    """An entry is cited by its number."""
    entry = NewEntry(
        user_id="ada", project_id="default", author="user", entry_type="decision",
        content="We water the turnips on Fridays.", title="Watering",
    )  # fmt: skip
    pushed = await project.store.threads.push(entry)
    outcome = await project.call("When do we water on Fridays?")
    (passage,) = json.loads(outcome.result.text)["passages"]
    assert passage["path"] == f"thread:{pushed.thread_id}#{pushed.id}"
    assert outcome.output.sources[0].kind is SourceKind.THREAD


@pytest.mark.parametrize(
    "question",
    [
        "What is the population of Greece?",
        "How do I bake sourdough bread?",
        "Who is Napoleon?",
        "Which vitamins does the broccoli in a garden have?",
        "",
        "what is it?",
    ],
)
async def test_what_the_project_does_not_have_is_not_answered(
    project: Project, question: str
) -> None:
    """No passage, no title and no source, although a note has one of the words.

    The words that occur nowhere are named.
    """
    outcome = await project.call(question or "?")
    found = json.loads(outcome.result.text)
    assert (found["passages"], found["see_also"], outcome.output.sources) == ([], [], ())
    assert ("population" in found["unknown"]) is ("population" in question)


async def test_a_long_section_is_divided(project: Project) -> None:
    """Near the words of the question."""
    (passage,) = (await project.ask("What about paragraph 23 of turnips?"))["passages"]
    assert "Paragraph 23 " in passage["text"]
    assert len(passage["text"]) < 4_000 < len(LONG)


async def test_a_changelog_comes_after_what_it_mentions(project: Project) -> None:
    """Its lines are short and full of names."""
    (passage,) = (await project.ask("When are budgets settled after a crash?"))["passages"]
    assert passage["path"] == "budgets.md"


async def test_a_guide_for_contributors_comes_after_one_for_users(project: Project) -> None:
    """The same words are in both."""
    found = await project.ask("What do olives need?")
    paths = [each["path"] for each in (*found["passages"], *found["see_also"])]
    assert paths == ["trees/olives.md", "contributing/olives.md"]


async def test_only_the_requested_source_is_searched(project: Project) -> None:
    """The question of where something is defined and what notes say needs one of each."""
    for source, kind in (("notes", "note"), ("code", "code")):
        found = await project.ask("Which class reserves budgets?", source=source, limit=5)
        assert {each["kind"] for each in found["passages"]} == {kind}
    assert (await project.ask("Which class reserves budgets?", source="threads"))["passages"] == []


async def test_the_quoted_passages_are_sources(project: Project) -> None:
    """With their lines and the version that was read; titles that are only named are none."""
    outcome = await project.call("What happens to a reservation after a crash?", limit=2)
    passages = json.loads(outcome.result.text)["passages"]
    versions = await project.notes.versions(("budgets.md",))
    assert [(each.path, each.lines) for each in outcome.output.sources] == [
        (each["path"], f"{each['first']}–{each['last']}") for each in passages
    ]
    assert outcome.output.sources[0].version == versions["budgets.md"]


async def test_the_marks_of_every_shown_passage_are_returned(project: Project) -> None:
    """Of notes, of code and of threads; a title may contain instructions too."""
    assert (await project.call("How do budgets work?")).output.marks == NO_MARKS
    author = NoteAuthor("oracle", frozenset({PAGE}))
    await project.notes.write(
        "web.md", "# Budget crashes\n\nA page about budgets.\n", version="", author=author
    )
    assert PAGE in (await project.call("How do budgets work?", limit=5)).output.marks
    named = await project.call(
        "What is the reservation of an interrupted call after a crash of budgets?"
    )
    assert "web.md" in named.result.text
    assert PAGE in named.output.marks
    project.code_marks = frozenset({Mark(Origin.PEER)})
    assert Mark(Origin.PEER) in (await project.call("Where is Meter defined?")).output.marks


async def test_other_users_see_nothing_of_it(project: Project) -> None:
    """Each search is for one user's project."""
    found = await project.ask("How do budgets work?", user="bob")
    assert found["passages"] == []
