"""Contexts: seed 000's OracleContext, read from what was said."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from dodona.agent.question import context_id
from dodona.agent.views import ContextViews
from dodona.core.domain.conversations.conversation import NewMessage, NewSummary, RunStatus
from dodona.core.domain.projects import Project
from dodona.core.errors import NotFound
from dodona.store import Store
from tests.agent.views.as_json import AsJson
from tests.agent.views.saying import CALLED, TOOL_CALLS, answered, asked, end

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
FIELDS = (
    *("id", "user_id", "project_id", "session_start", "last_activity", "last_model"),
    *("token_budget", "tokens_used", "compressed_summary", "recent_exchanges", "key_decisions"),
    *("mentioned_symbols", "mentioned_files", "status", "compression_count"),
)


async def test_an_unknown_project_and_one_without_a_context_are_not_found(storage: Store) -> None:
    """The second is told how a context begins; another's project is unknown."""
    contexts = AsJson(ContextViews(storage))
    await storage.projects.create(Project("ben", "garden"))
    for call in (contexts.show, contexts.close):
        with pytest.raises(NotFound) as missing:
            await call("ada", "default")
        assert str(missing.value) == (
            "project default has no context yet. The first question starts it."
        )
        with pytest.raises(NotFound, match="there is no project 'garden'"):
            await call("ada", "garden")


async def test_a_context_has_all_fields_of_the_seed(storage: Store) -> None:
    """And the context_id to go on from."""
    run_id = await answered(storage, "What is an oak?", "A tree.", turns=(CALLED,))
    shown = await AsJson(ContextViews(storage)).show("ada", "default")
    assert set(shown) == {*FIELDS, "context_id", "marks"}
    assert shown["context_id"] == context_id(run_id)
    assert TIME.fullmatch(shown["session_start"])
    assert TIME.fullmatch(shown["last_activity"])
    expected = {
        "user_id": "ada",
        "project_id": "default",
        "last_model": "oak-1",
        "token_budget": 16_000,
        "tokens_used": 20,
        "compressed_summary": None,
        "key_decisions": [],
        "mentioned_symbols": None,
        "mentioned_files": None,
        "status": "active",
        "compression_count": 0,
    }
    assert {name: shown[name] for name in expected} == expected


async def test_exchanges_are_those_of_the_seed(storage: Store) -> None:
    """Each message is one; a call's arguments are an object whatever the model wrote."""
    await answered(storage, "What is an oak?", "A tree.", turns=(CALLED,))
    question, answer = (await AsJson(ContextViews(storage)).show("ada", "default"))[
        "recent_exchanges"
    ]
    assert TIME.fullmatch(question.pop("timestamp"))
    assert TIME.fullmatch(answer.pop("timestamp"))
    assert question.pop("id") != answer.pop("id")
    assert question == {
        "role": "user",
        "content": "What is an oak?",
        "tool_calls": None,
        "tool_call_id": None,
        "token_count": 10,
        "key_insight": None,
        "mentioned_symbols": [],
        "mentioned_files": [],
        "marks": [],
    }
    assert answer == {
        "role": "assistant",
        "content": "A tree.",
        "tool_calls": TOOL_CALLS,
        "tool_call_id": None,
        "token_count": 10,
        "key_insight": "Oaks are old.",
        "mentioned_symbols": ["Oak"],
        "mentioned_files": ["trees.md"],
        "marks": [],
    }


def contents(shown: dict[str, Any]) -> list[str]:
    return [each["content"] for each in shown["recent_exchanges"]]


async def test_the_ten_newest_exchanges_are_shown_the_oldest_first(storage: Store) -> None:
    """Whole runs: a question comes with its answer."""
    for number in range(12):
        await answered(storage, f"q{number}", f"a{number}")
    shown = await AsJson(ContextViews(storage)).show("ada", "default")
    assert contents(shown) == [f"{kind}{number}" for number in range(2, 12) for kind in "qa"]


async def test_what_does_not_fit_the_budget_is_not_recent(storage: Store) -> None:
    """A context holds so much and no more."""
    for number in range(4):
        await answered(storage, f"q{number}", f"a{number}", tokens=3_000)
    shown = await AsJson(ContextViews(storage)).show("ada", "default")
    assert contents(shown) == ["q2", "a2", "q3", "a3"]


async def test_a_summary_stands_for_what_came_before(storage: Store) -> None:
    """It is seen however many exchanges have come since."""
    first = await answered(storage, "first")
    await storage.summaries.save(
        "ada", NewSummary(run_id=first, content="Oaks were spoken of.", token_count=5)
    )
    for number in range(11):
        await answered(storage, f"q{number}")
    shown = await AsJson(ContextViews(storage)).show("ada", "default")
    assert shown["compressed_summary"] == "Oaks were spoken of."
    assert contents(shown)[0] == "q1"


async def test_a_question_that_is_being_answered_is_not_among_them(storage: Store) -> None:
    """One that was never answered has a context without a head."""
    await asked(storage, "Well?")
    shown = await AsJson(ContextViews(storage)).show("ada", "default")
    assert (shown["context_id"], shown["recent_exchanges"]) == (None, [])
    assert (shown["last_model"], shown["status"]) == (None, "active")


async def test_contexts_of_projects_and_users_are_apart(storage: Store) -> None:
    """What is said in one is not heard in another."""
    await storage.projects.create(Project("ada", "garden"))
    for user, project in (("ada", "default"), ("ada", "garden"), ("ben", "default")):
        await answered(storage, f"{user} in {project}", user=user, project=project)
    contexts = AsJson(ContextViews(storage))
    for user, project in (("ada", "default"), ("ada", "garden"), ("ben", "default")):
        shown = await contexts.show(user, project)
        assert contents(shown) == [f"{user} in {project}", "So be it."]


async def test_a_closed_context_shows_what_was_said_and_begins_anew(storage: Store) -> None:
    """Closing twice, or many times at once, is closing."""
    contexts = AsJson(ContextViews(storage))
    await answered(storage, "old")
    closed = await asyncio.gather(*(contexts.close("ada", "default") for _ in range(8)))
    assert all(each == closed[0] for each in closed)
    assert (closed[0]["status"], closed[0]["context_id"]) == ("closed", None)
    assert contents(closed[0]) == ["old", "So be it."]
    assert await contexts.show("ada", "default") == closed[0]

    await answered(storage, "new")
    shown = await contexts.show("ada", "default")
    assert (shown["status"], contents(shown)) == ("active", ["new", "So be it."])


async def test_closing_leaves_a_run_alone(storage: Store) -> None:
    """It is answered in its conversation; the next question is asked in another."""
    contexts = AsJson(ContextViews(storage))
    driven = await asked(storage, "old")
    assert (await contexts.close("ada", "default"))["status"] == "closed"
    another = await asked(storage, "new")  # which waits for nobody
    said = NewMessage("assistant", "So be it.", 10)
    await end(storage, driven, said)
    run = await storage.runs.get("ada", driven.run_id)
    assert run.status is RunStatus.SUCCEEDED
    await end(storage, another, said)
    assert contents(await contexts.show("ada", "default")) == ["new", "So be it."]
