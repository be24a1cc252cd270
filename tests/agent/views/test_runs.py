"""Runs: listed for the user whose they are, and shown step by step."""

from __future__ import annotations

import re
from time import time

import pytest

from dodona.agent.question import context_id
from dodona.agent.views import RunViews
from dodona.core.domain.conversations.conversation import NewMessage, RunEnd, RunRequest, RunStatus
from dodona.core.domain.projects import Project
from dodona.core.errors import (
    BadRequest,
    NotFound,
    ProviderError,
    ProviderErrorKind,
    body_from_json,
    to_body,
)
from dodona.core.ports.journal import Effect, StepRecord, StepStart
from dodona.core.ports.tools import SourceReference
from dodona.store import Store
from tests.agent.views.as_json import AsJson
from tests.agent.views.saying import CALLED, TOOL_CALLS, answered, asked
from tests.stored import record_call

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
OVERVIEW = {
    *("id", "project_id", "context_id", "session_key", "status", "origin", "attempt", "question"),
    *("tokens", "finish", "termination_reason"),
    *("error", "created_at", "started_at", "ended_at", "duration_ms"),
}


async def test_runs_are_listed_newest_first_page_by_page(storage: Store) -> None:
    """The user's own, of one project or of all."""
    runs = AsJson(RunViews(storage))
    await storage.projects.create(Project("ada", "garden"))
    made = [await answered(storage, f"q{number}") for number in range(5)]
    other = await answered(storage, "in the garden", project="garden")
    await answered(storage, "somebody else's", user="ben")

    assert [run["id"] for run in await runs.list("ada")] == [other, *reversed(made)]
    assert [run["id"] for run in await runs.list("ada", project_id="garden")] == [other]
    first = await runs.list("ada", project_id="default", limit=2)
    assert [run["question"] for run in first] == ["q4", "q3"]
    second = await runs.list("ada", project_id="default", before=first[-1]["id"], limit=2)
    assert [run["question"] for run in second] == ["q2", "q1"]
    assert await runs.list("cleo") == []


async def test_a_run_in_a_list_says_where_it_belongs_and_how_it_went(storage: Store) -> None:
    """Without what was said, which may be long."""
    run_id = await answered(storage, "What is an oak?")
    for _ in range(2):
        await record_call(storage, "ada", run_id, input_tokens=6, output_tokens=1)
    (shown,) = await AsJson(RunViews(storage)).list("ada")
    assert set(shown) == OVERVIEW
    for name in ("created_at", "started_at", "ended_at"):
        assert TIME.fullmatch(shown.pop(name))
    assert shown.pop("duration_ms") >= 0
    assert shown == {
        "id": run_id,
        "project_id": "default",
        "context_id": context_id(run_id),
        "status": "succeeded",
        "origin": "user",
        "session_key": None,
        "attempt": 1,
        "question": "What is an oak?",
        "tokens": 14,
        "finish": None,
        "termination_reason": None,
        "error": None,
    }


async def test_what_makes_no_page_is_refused(storage: Store) -> None:
    """With the bounds; a project that is not the user's is not found."""
    runs = AsJson(RunViews(storage))
    await storage.projects.create(Project("ben", "garden"))
    for limit in (0, 201, -1):
        with pytest.raises(BadRequest, match=rf"from 1 to 200 \(got {limit}\)"):
            await runs.list("ada", limit=limit)
    with pytest.raises(BadRequest, match="before must be a run ID"):
        await runs.list("ada", before=0)
    with pytest.raises(NotFound, match="there is no project 'garden'"):
        await runs.list("ada", project_id="garden")


async def test_a_run_is_shown_with_what_was_said(storage: Store) -> None:
    """Its answer, the model that gave it, its sources, and both messages with their calls."""
    source = {"path": "trees.md", "title": "Trees", "lines": "1–2", "excerpt": "Oaks."}
    question = "What is an oak? " * 100
    run_id = await answered(
        storage,
        question,
        "A tree.",
        turns=(CALLED,),
        sources=(SourceReference(**source),),
        model="oak-1",
    )
    await answered(storage, "later")
    shown = await AsJson(RunViews(storage)).show("ada", run_id)
    assert set(shown) == OVERVIEW | {"answer", "model", "sources", "messages", "steps"}
    assert (shown["question"], shown["answer"], shown["model"]) == (question, "A tree.", "oak-1")
    assert shown["sources"] == [{**source, "kind": "note", "version": ""}]
    asked_, said = shown["messages"]
    assert (asked_["role"], asked_["content"]) == ("user", question)
    assert (said["role"], said["tool_calls"]) == ("assistant", TOOL_CALLS)


async def test_a_run_that_goes_on_has_no_answer_yet(storage: Store) -> None:
    """Nor an end."""
    driven = await asked(storage, "Well?")
    shown = await AsJson(RunViews(storage)).show("ada", driven.run_id)
    assert (shown["status"], shown["question"]) == ("running", "Well?")
    for name in ("answer", "model", "ended_at", "duration_ms", "error"):
        assert shown[name] is None
    assert (shown["sources"], shown["steps"]) == ([], [])
    assert [message["role"] for message in shown["messages"]] == ["user"]


async def test_steps_are_shown_with_times_tokens_and_errors(storage: Store) -> None:
    """In the order in which they began. What was asked of them is only a hash."""
    driven = await asked(storage, "Well?")
    journal = await storage.journals.open(driven)
    journal.begin(StepStart("loop[1]/think", "llm-call", Effect.NONE, "a long request"))
    said = {"text": "Let me see.", "input_tokens": 40, "output_tokens": 2}
    journal.finish("loop[1]/think", StepRecord("llm-call", succeeded=True, writes={"answer": said}))
    journal.begin(StepStart("loop[1]/tools[0]", "call-tool", Effect.ONCE, "write"))
    failure = {"code": "tool_failed", "message": "the disk is full.", "hint": ""}
    journal.finish("loop[1]/tools[0]", StepRecord("call-tool", succeeded=False, error=failure))
    ending = NewMessage("assistant", "I could not.", 5)
    await journal.end(RunEnd(status=RunStatus.SUCCEEDED, messages=(ending,)))

    steps = (await AsJson(RunViews(storage)).show("ada", driven.run_id))["steps"]
    for step in steps:
        assert TIME.fullmatch(step.pop("started_at"))
        assert TIME.fullmatch(step.pop("ended_at"))
        assert step.pop("ms") >= 0
        assert step.pop("request_hash") not in ("", "a long request", "write")
    assert steps == [
        {
            "key": "loop[1]/think",
            "leaf": "llm-call",
            "effect": "none",
            "attempt": 1,
            "status": "succeeded",
            "tokens": 42,
            "error": None,
        },
        {
            "key": "loop[1]/tools[0]",
            "leaf": "call-tool",
            "effect": "once",
            "attempt": 1,
            "status": "failed",
            "tokens": None,
            "error": failure,
        },
    ]


async def test_a_step_that_wrote_down_its_failure_shows_it(storage: Store) -> None:
    """Until what steps left has expired; the steps themselves stay."""
    driven = await asked(storage, "Well?")
    journal = await storage.journals.open(driven)
    failure = {"code": "provider_failed", "message": "nobody answers.", "hint": ""}
    journal.begin(StepStart("think", "llm-call", Effect.NONE, "a long request"))
    journal.finish("think", StepRecord("llm-call", succeeded=False, writes={"failure": failure}))
    await journal.end(RunEnd(status=RunStatus.FAILED, error=body_from_json(failure)))

    (step,) = (await AsJson(RunViews(storage)).show("ada", driven.run_id))["steps"]
    assert (step["status"], step["error"], step["tokens"]) == ("failed", failure, None)
    await storage.journals.delete_step_results(time() + 1)
    (step,) = (await AsJson(RunViews(storage)).show("ada", driven.run_id))["steps"]
    assert (step["status"], step["error"], step["tokens"]) == ("failed", None, None)


async def test_a_run_that_waits_is_shown_too(storage: Store) -> None:
    """It has not been started by anybody."""
    await asked(storage, "first")
    waiting = await storage.runs.submit(
        RunRequest(user_id="ada", question="second", token_count=10)
    )
    shown = await AsJson(RunViews(storage)).show("ada", waiting.run_id)
    assert (shown["status"], shown["attempt"]) == ("queued", 0)
    assert (shown["started_at"], shown["question"]) == (None, "second")


async def test_a_run_that_failed_says_why(storage: Store) -> None:
    """Code, message and hint."""
    failure = ProviderError(
        "nobody answers.", kind=ProviderErrorKind.CONNECTION, provider="oak", hint="Wait."
    )
    told = {"code": "provider_failed", "message": "nobody answers.", "hint": "Wait."}
    driven = await asked(storage, "Well?")
    journal = await storage.journals.open(driven)
    await journal.end(RunEnd(status=RunStatus.FAILED, error=to_body(failure)))
    shown = await AsJson(RunViews(storage)).show("ada", driven.run_id)
    assert (shown["status"], shown["error"]) == ("failed", told)


@pytest.mark.parametrize("run_id", [0, -1, 99, 2**63 - 2, 2**63 - 1, 2**63, 10**30])
async def test_a_run_that_is_not_there_or_anothers_is_not_found(
    storage: Store, run_id: int
) -> None:
    """Whatever number is asked for."""
    await answered(storage, "mine", user="ada")
    theirs = await answered(storage, "theirs", user="ben")
    for each in (run_id, theirs):
        with pytest.raises(NotFound) as missing:
            await AsJson(RunViews(storage)).show("ada", each)
        assert str(missing.value) == (f"there is no run {each}. Find it in the list of your runs.")
