"""The windows of runs share their beginning, and drop to half when they are full."""

from __future__ import annotations

from typing import Any

import pytest

from dodona.core.domain.conversations.conversation import (
    ClaimedRun,
    Conversation,
    NewMessage,
    NewSummary,
    RunEnd,
    RunRequest,
    RunStatus,
    Window,
)
from dodona.core.errors import NotFound
from dodona.store import Store
from dodona.store.schema import runs
from tests.conformance.store.saying import exchange, rows_of


async def asked(store: Store, question: str, *, tokens: int = 10, **more: Any) -> ClaimedRun:
    found = await store.runs.submit(
        RunRequest(user_id="ada", question=question, token_count=tokens, **more)
    )
    assert isinstance(found, ClaimedRun)
    return found


async def ended(store: Store, run: ClaimedRun, answer: str = "so", *, tokens: int = 10) -> int:
    journal = await store.journals.open(run)
    message = NewMessage("assistant", answer, tokens)
    await journal.end(RunEnd(status=RunStatus.SUCCEEDED, messages=(message,)))
    return run.run_id


def seen(run: ClaimedRun) -> Window:
    assert isinstance(run.window, Window)
    return run.window


def questions(run: ClaimedRun) -> list[str]:
    return [message.content for message in seen(run).messages if message.role == "user"]


async def resumed(store: Store, run: ClaimedRun) -> ClaimedRun:
    """The next attempt of a run whose driver was lost."""
    store.runs.release_claim(run)
    again = await store.runs.claim_next(run.conversation_id)
    assert isinstance(again, ClaimedRun)
    assert again.attempt == run.attempt + 1
    assert again.started_at == run.started_at > 0
    return again


# -- half at once ----------------------------------------------------------------------------------


async def test_a_full_window_drops_to_half_and_grows_again(store: Store) -> None:
    """At most six runs: the beginning stays for four questions at a time."""
    await store.settings.update("ada", lambda _: {"max_context_nodes": 6})
    found: list[list[str]] = []
    for number in range(14):
        run = await asked(store, str(number))
        found.append(questions(run))
        await ended(store, run)
    spans = [(int(each[0]), int(each[-1])) if each else None for each in found]
    assert spans == [
        None,
        *((0, n) for n in range(6)),
        *((4, n) for n in range(6, 10)),
        *((8, n) for n in range(10, 13)),
    ]
    assert all(
        each == [str(n) for n in range(int(each[0]), int(each[-1]) + 1)] for each in found[1:]
    )


async def test_the_token_budget_fills_a_window_too(store: Store) -> None:
    """4,000 tokens, 1,000 a run: the fifth does not fit, and two of them are left."""
    found: list[list[str]] = []
    for number in range(9):
        run = await asked(store, str(number), tokens=100, token_budget=4000)
        found.append(questions(run))
        assert seen(run).tokens <= 4000
        await ended(store, run, tokens=900)
    assert found == [
        *([str(n) for n in range(last)] for last in range(5)),
        ["3", "4"],
        ["3", "4", "5"],
        ["3", "4", "5", "6"],
        ["6", "7"],
    ]


async def test_the_newest_run_is_seen_whatever_it_weighs(store: Store) -> None:
    """A question that refers to the last answer must find it."""
    await ended(store, await asked(store, "small", token_budget=4000))
    await ended(store, await asked(store, "huge"), tokens=9000)
    run = await asked(store, "next")
    assert questions(run) == ["huge"]
    assert seen(run).is_truncated
    await ended(store, run)
    assert questions(await asked(store, "after")) == ["next"]


async def test_a_window_of_one_run(store: Store) -> None:
    await store.settings.update("ada", lambda _: {"max_context_nodes": 1})
    for number in range(3):
        run = await asked(store, str(number))
        assert questions(run) == ([str(number - 1)] if number else [])
        await ended(store, run)


@pytest.mark.parametrize("wrong", [0, -1, "many", None, True, 2.5])
async def test_a_setting_that_makes_no_sense_counts_for_nothing(store: Store, wrong: Any) -> None:
    """Whoever wrote it: the question is taken in."""
    await store.settings.update("ada", lambda _: {"max_context_nodes": wrong})
    await ended(store, await asked(store, "one"))
    await ended(store, await asked(store, "two"))
    assert questions(await asked(store, "three")) == ["one", "two"]


async def test_a_branch_begins_where_its_parent_began(store: Store) -> None:
    """It shares the beginning with the runs beside it."""
    await store.settings.update("ada", lambda _: {"max_context_nodes": 4})
    ids = [await ended(store, await asked(store, str(n))) for n in range(7)]
    run = await asked(store, "branch", parent_id=ids[5])
    assert questions(run) == ["3", "4", "5"]
    await ended(store, run)
    assert questions(await asked(store, "more", parent_id=run.run_id)) == [
        "3",
        "4",
        "5",
        "branch",
    ]


async def test_runs_that_were_appended_are_seen_up_to_the_budget(store: Store) -> None:
    """Nobody drove them, so nobody knows where their windows began: the full one is halved."""
    await ended(store, await asked(store, "first"))
    context = await store.contexts.get("ada", "default")
    assert context.conversation_id is not None
    for number in range(40):
        await store.conversations.append("ada", context.conversation_id, exchange(str(number)))
    run = await asked(store, "next")
    assert questions(run) == [str(n) for n in range(25, 40)]
    await ended(store, run)
    assert questions(await asked(store, "after")) == [*(str(n) for n in range(25, 40)), "next"]


# -- summaries -------------------------------------------------------------------------------------


async def test_a_summary_ends_the_window(store: Store) -> None:
    """Of runs before and after it was made; it counts with its own tokens."""
    ids = [await ended(store, await asked(store, str(n))) for n in range(4)]
    await store.summaries.save("ada", NewSummary(run_id=ids[1], content="briefly", token_count=7))
    run = await asked(store, "next")
    assert questions(run) == ["2", "3"]
    summary = seen(run).summary
    assert summary is not None
    assert (summary.run_id, summary.content) == (ids[1], "briefly")
    assert (seen(run).tokens, seen(run).is_truncated) == (47, False)
    row = (await rows_of(store, runs))[-1]
    assert (row["window_from"], row["window_runs"], row["window_tokens"]) == (ids[1], 3, 47)
    await ended(store, run)
    assert questions(await asked(store, "after")) == ["2", "3", "next"]


# -- resumed ---------------------------------------------------------------------------------------


async def test_a_resumed_run_sees_what_it_saw(store: Store) -> None:
    """Though settings have changed since, and a summary was made."""
    ids = [await ended(store, await asked(store, str(n))) for n in range(5)]
    await store.summaries.save("ada", NewSummary(run_id=ids[0], content="first", token_count=3))
    run = await asked(store, "next")
    await store.settings.update("ada", lambda _: {"max_context_nodes": 2})
    await store.summaries.save("ada", NewSummary(run_id=ids[3], content="later", token_count=3))
    again = await resumed(store, run)
    assert again.window == run.window
    assert again.parent_id == run.parent_id
    assert (await resumed(store, again)).window == run.window


async def test_a_resumed_run_that_waited_sees_what_it_saw(store: Store, second: Store) -> None:
    """Its window was fixed when it was first driven, not when it was asked."""
    first = await asked(store, "one")
    waiting = await store.runs.submit(
        RunRequest(user_id="ada", project_id="default", question="two", token_count=10)
    )
    await ended(store, first)
    run = await second.runs.claim_next(waiting.conversation_id)
    assert isinstance(run, ClaimedRun)
    assert questions(run) == ["one"]
    assert (await resumed(second, run)).window == run.window


async def test_a_resumed_first_run_sees_nothing(store: Store) -> None:
    run = await asked(store, "one")
    assert (await resumed(store, run)).window == Window(None, ())


async def test_a_resumed_run_has_its_pins(store: Store) -> None:
    """What the first attempt began with, once it was committed."""
    run = await asked(store, "one")
    journal = await store.journals.open(run)
    journal.pin(b"a tree\0 and prompts")
    await journal.commit(lambda _: None)
    again = await resumed(store, run)
    assert again.pins == b"a tree\0 and prompts"


# -- any node --------------------------------------------------------------------------------------


async def test_windows_for_people_hold_what_fits(store: Store, talk: Conversation) -> None:
    """They do not drop to half: nobody is sent their beginning again."""
    for number in range(10):
        await store.conversations.append("ada", talk.id, exchange(str(number)))
    window = await store.conversations.load_window("ada", talk.id, budget=100, max_runs=50)
    assert [m.content for m in window.messages if m.role == "user"] == ["5", "6", "7", "8", "9"]


async def test_a_history_has_summarised_runs_too(store: Store, talk: Conversation) -> None:
    """Page by page to the first run; a cursor stays valid while the conversation grows."""
    add = store.conversations.append
    ids = [await add("ada", talk.id, exchange(str(number))) for number in range(5)]
    await store.summaries.save("ada", NewSummary(run_id=ids[3], content="briefly", token_count=7))
    pages: list[list[str]] = []
    before: int | None = None
    for _ in range(3):
        page = await store.conversations.load_history("ada", talk.id, before=before, max_runs=2)
        pages.append([message.content for message in page.messages if message.role == "user"])
        before = page.messages[0].run_id
        await add("ada", talk.id, exchange("new"))
    assert pages == [["3", "4"], ["1", "2"], ["0"]]
    assert not page.is_truncated
    other = await store.conversations.create("ada")
    with pytest.raises(NotFound, match="there is no run"):
        await store.conversations.load_history("ada", other.id, before=ids[0], max_runs=2)
