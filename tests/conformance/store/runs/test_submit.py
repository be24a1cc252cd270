"""A question is taken in once, in its context, and driven at once when nobody is before it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from sqlalchemy import text

from dodona.core.domain.conversations.contexts import ContextStatus
from dodona.core.domain.conversations.conversation import (
    CachedWindow,
    ClaimedRun,
    NewMessage,
    NewSummary,
    QueuedRun,
    RunEnd,
    RunNode,
    RunRequest,
    RunStatus,
    Window,
)
from dodona.core.domain.projects import Project
from dodona.core.errors import BadRequest, NotFound
from dodona.store import Store
from dodona.store.db.database import StoreOperation
from dodona.store.db.statements import statement
from dodona.store.schema import (
    conversations,
    messages,
    metadata,
    oracle_contexts,
    projects,
    runs,
)
from tests.conformance.store.saying import deadlocks, exchange, rows_of, said

DONE = RunStatus.SUCCEEDED


def asking(question: str = "why?", **more: Any) -> RunRequest:
    values: dict[str, Any] = {"user_id": "ada", "project_id": "default", **more}
    return RunRequest(question=question, token_count=10, **values)


async def driven(store: Store, question: str = "why?", **more: Any) -> ClaimedRun:
    """A question whose lane was free."""
    asked = await store.runs.submit(asking(question, **more))
    assert isinstance(asked, ClaimedRun)
    return asked


async def answered(
    store: Store, run: ClaimedRun, text: str = "because", **more: Any
) -> float | None:
    journal = await store.journals.open(run)
    given = (NewMessage("assistant", text, more.pop("tokens", 5)),)
    return await journal.end(RunEnd(status=DONE, messages=given, **more))


async def exchanged(store: Store, question: str, **more: Any) -> tuple[int, float]:
    """A question with its answer: the run, and when it moved the head."""
    run = await driven(store, question, **more)
    ended = await answered(store, run, f"on {question}")
    assert ended is not None
    return run.run_id, ended


def words(run: ClaimedRun) -> list[str]:
    assert isinstance(run.window, Window)
    return [message.content for message in run.window.messages]


async def next_driven(store: Store, asked: ClaimedRun | QueuedRun) -> ClaimedRun:
    found = await store.runs.claim_next(asked.conversation_id)
    assert isinstance(found, ClaimedRun), found
    return found


# -- the first and the next ------------------------------------------------------------------------


async def test_the_first_question_makes_all_that_it_needs(store: Store) -> None:
    """A default project, a context, a conversation, and a run that this process drives."""
    run = await driven(store, "why?", origin="peer", token_budget=8000)
    assert (run.attempt, run.owner, run.parent_id) == (1, store.database.owners.current, None)
    assert (run.question.content, run.question.ordinal) == ("why?", 0)
    assert run.question == (await store.runs.messages("ada", run.run_id))[0]
    assert run.context == await store.contexts.get("ada", "default")
    assert (run.context.token_budget, run.context.status) == (8000, ContextStatus.ACTIVE)
    assert run.context.conversation_id == run.conversation_id
    assert run.project == await store.projects.get("ada", "default")
    assert (run.settings, run.pins) == ({}, None)
    assert words(run) == []
    node = await store.runs.get("ada", run.run_id)
    assert (node.status, node.owner, node.attempt) == (RunStatus.RUNNING, run.owner, 1)
    assert (node.session_key, node.origin, node.tokens) == (None, "peer", 10)
    assert node.started_at == run.started_at


async def test_the_next_question_follows_the_answer(store: Store) -> None:
    """In the same context and conversation, with what was said in its window."""
    first, _ = await exchanged(store, "one")
    run = await driven(store, "two")
    assert run.parent_id == first
    assert words(run) == ["one", "on one"]
    assert [len(await rows_of(store, table)) for table in (conversations, oracle_contexts)] == [
        1,
        1,
    ]


async def test_a_question_waits_for_the_one_before(store: Store, second: Store) -> None:
    """Whichever process asks; its parent and window are those of the moment of its turn."""
    run = await driven(store, "one")
    waiting = await second.runs.submit(asking("two"))
    assert isinstance(waiting, QueuedRun)
    assert isinstance(await second.runs.claim_next(waiting.conversation_id), RunNode)
    await answered(store, run, "on one")
    after = await next_driven(second, waiting)
    assert (after.run_id, after.attempt) == (waiting.run_id, 1)
    assert after.parent_id == run.run_id
    assert words(after) == ["one", "on one"]
    assert (after.question.content, after.pins) == ("two", None)
    assert await answered(second, after) is not None


async def test_a_question_does_not_pass_one_that_waits(store: Store) -> None:
    """Though nobody drives any: those who were first come first."""
    run = await driven(store, "one")
    two = await store.runs.submit(asking("two"))
    await answered(store, run)
    three = await store.runs.submit(asking("three"))
    assert isinstance(three, QueuedRun)
    order: list[int] = []
    while (found := await store.runs.claim_next(two.conversation_id)) is not None:
        assert isinstance(found, ClaimedRun)
        order.append(found.run_id)
        await answered(store, found)
    assert order == [two.run_id, three.run_id]


async def test_contexts_do_not_wait_for_each_other(store: Store) -> None:
    """Neither those of other projects, nor those of other users."""
    await store.projects.create(Project("ada", "wald"))
    found = [
        await driven(store),
        await driven(store, project_id="wald"),
        await driven(store, user_id="bob"),
    ]
    assert len({run.conversation_id for run in found}) == 3


async def test_the_brief_has_the_users_settings_and_project(store: Store) -> None:
    await store.settings.update("ada", lambda _: {"oracle_model": "oak"})
    made = await store.projects.create(
        Project("ada", "wald", "/notes", ("/code",), {"prompt": "short"})
    )
    run = await driven(store, project_id="wald")
    assert run.settings == {"oracle_model": "oak"}
    assert run.project == made


async def test_text_that_no_database_holds_is_mended(store: Store) -> None:
    """The brief has what is kept, so that a resumed run sees what the first one saw."""
    run = await driven(store, "nul \0, half \ud83d")
    assert run.question.content == "nul ␀, half �"
    assert run.question == (await store.runs.messages("ada", run.run_id))[0]


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize("project", ["wald", "DEFAULT", ""])
async def test_the_project_must_be_the_users(store: Store, project: str) -> None:
    """Another's is not found, and nothing is made."""
    await store.projects.create(Project("bob", "wald"))
    before = {table: await rows_of(store, metadata.tables[table]) for table in metadata.tables}
    with pytest.raises(NotFound) as missing:
        await store.runs.submit(asking(project_id=project))
    assert str(missing.value) == f"there is no project '{project}'."
    assert before == {
        table: await rows_of(store, metadata.tables[table]) for table in metadata.tables
    }


@pytest.mark.parametrize("budget", [3999, 128_001])
async def test_a_budget_has_bounds(store: Store, budget: int) -> None:
    with pytest.raises(BadRequest, match="token_budget must be from 4000 to 128000"):
        await store.runs.submit(asking(token_budget=budget))


async def test_a_question_says_something(store: Store) -> None:
    with pytest.raises(BadRequest, match="message is empty"):
        await store.runs.submit(asking(""))
    assert await rows_of(store, projects) == []


# -- going on from a node --------------------------------------------------------------------------


async def test_a_question_may_go_on_from_an_earlier_run(store: Store) -> None:
    """It is a branch: the window is that of its parent, and the head stays."""
    first, _ = await exchanged(store, "one")
    second, _ = await exchanged(store, "two")
    run = await driven(store, "three", parent_id=first)
    assert run.parent_id == first
    assert words(run) == ["one", "on one"]
    assert await answered(store, run) is None
    assert (await driven(store, "four")).parent_id == second


async def test_a_question_that_names_the_head_moves_it(store: Store) -> None:
    first, _ = await exchanged(store, "one")
    run = await driven(store, "two", parent_id=first)
    assert await answered(store, run) is not None


async def test_a_question_that_names_its_parent_keeps_it_while_it_waits(store: Store) -> None:
    first, _ = await exchanged(store, "one")
    run = await driven(store, "two")
    waiting = await store.runs.submit(asking("three", parent_id=first))
    await answered(store, run)
    after = await next_driven(store, waiting)
    assert after.parent_id == first
    assert words(after) == ["one", "on one"]


async def test_a_parent_must_be_there(store: Store) -> None:
    """In the context's own conversation, and the user's: else there is no such run."""
    await exchanged(store, "one")
    other, _ = await exchanged(store, "his", user_id="bob")
    old, _ = await exchanged(store, "old", user_id="eve")
    await exchanged(store, "new", user_id="eve", new_conversation=True)
    before = await rows_of(store, runs)
    for user, parent in (("ada", other), ("ada", 999_999), ("eve", old)):
        with pytest.raises(NotFound, match=f"there is no run {parent}"):
            await store.runs.submit(asking("?", user_id=user, parent_id=parent))
    assert await rows_of(store, runs) == before


async def test_a_parent_must_have_ended(store: Store) -> None:
    run = await driven(store, "one")
    with pytest.raises(BadRequest) as refused:
        await store.runs.submit(asking("two", parent_id=run.run_id))
    assert str(refused.value) == (
        f"run {run.run_id} is running. Wait until it has ended, or cancel it."
    )


# -- contexts --------------------------------------------------------------------------------------


async def test_a_closed_context_begins_anew(store: Store) -> None:
    """In another conversation, with nothing in the window, and with the new budget."""
    first, _ = await exchanged(store, "one")
    closed = await store.contexts.set_status("ada", "default", ContextStatus.CLOSED)
    run = await driven(store, "two", token_budget=4000)
    assert run.conversation_id != closed.conversation_id
    assert (run.parent_id, words(run)) == (None, [])
    context = await store.contexts.get("ada", "default")
    assert (context.id, context.status, context.token_budget) == (
        closed.id,
        ContextStatus.ACTIVE,
        4000,
    )
    assert run.context == context
    assert (await store.runs.get("ada", first)).status is DONE


async def test_who_wants_to_begins_anew(store: Store) -> None:
    """Though the context is open, and a run goes on in it."""
    run = await driven(store, "one")
    fresh = await driven(store, "two", new_conversation=True)
    assert fresh.conversation_id != run.conversation_id
    assert words(fresh) == []
    assert await answered(store, run) is not None
    assert (await driven(store, "three", new_conversation=True)).parent_id is None


async def test_a_deleted_conversation_is_replaced(store: Store) -> None:
    await exchanged(store, "one")
    context = await store.contexts.get("ada", "default")
    assert context.conversation_id is not None
    await store.conversations.delete("ada", context.conversation_id)
    run = await driven(store, "two")
    assert run.conversation_id != context.conversation_id
    assert words(run) == []


async def test_a_question_wakes_a_suspended_context(store: Store) -> None:
    """It goes on where it was."""
    await exchanged(store, "one")
    await store.contexts.set_status("ada", "default", ContextStatus.SUSPENDED)
    run = await driven(store, "two")
    assert run.context.status is ContextStatus.ACTIVE
    assert (await store.contexts.get("ada", "default")).status is ContextStatus.ACTIVE
    assert words(run) == ["one", "on one"]


async def test_a_run_of_an_earlier_conversation_is_still_driven(
    store: Store, second: Store
) -> None:
    """Its context is in another conversation by now; the run is told of its own."""
    run = await driven(store, "one")
    waiting = await store.runs.submit(asking("two"))
    await driven(store, "three", new_conversation=True)
    await answered(store, run)
    after = await next_driven(second, waiting)
    assert after.context.conversation_id == waiting.conversation_id
    assert words(after) == ["one", "because"]


async def test_a_run_outside_any_context_is_driven(store: Store) -> None:
    """A session's, for example: it has a project and a budget all the same."""
    talk = await store.conversations.create("ada", project_id="wald")
    await store.runs.accept("ada", talk.id, said("?"))
    found = await store.runs.claim_next(talk.id)
    assert isinstance(found, ClaimedRun)
    assert (found.project.user_id, found.project.id) == ("ada", "wald")
    assert (found.context.conversation_id, found.context.token_budget) == (
        talk.id,
        16_000,
    )
    assert await answered(store, found, model="oak") is not None


# -- what the asker knows --------------------------------------------------------------------------


async def test_who_knows_the_window_is_not_told_again(store: Store) -> None:
    """As long as nothing has moved since; then the window counts on from what it knows."""
    known: CachedWindow | None = None
    for number in range(4):
        run = await driven(store, f"q{number}", cached_window=known)
        assert known is None or run.window is known
        ended = await answered(store, run, f"a{number}")
        assert ended is not None
        known = CachedWindow(run.run_id, ended, payload=object())
    run = await driven(store, "all")
    assert words(run) == [f"{what}{number}" for number in range(4) for what in "qa"]


async def test_who_knows_something_old_is_told(store: Store) -> None:
    """Another head, another time, or a summary that was made since."""
    first, ended = await exchanged(store, "one")
    for known in (
        CachedWindow(first + 1, ended),
        CachedWindow(first, ended + 1),
    ):
        run = await driven(store, "two", cached_window=known)
        assert words(run)[:2] == ["one", "on one"]
        await store.runs.cancel("ada", run.run_id)
        journal = await store.journals.open(run)
        await journal.end(RunEnd(status=RunStatus.CANCELLED))
        context = await store.contexts.get("ada", "default")
        assert context.conversation_id is not None
        await store.conversations.move_head(
            "ada", context.conversation_id, expected=run.run_id, to=first
        )
        talk = await store.conversations.get("ada", context.conversation_id)
        ended = talk.updated_at
    await store.summaries.save("ada", NewSummary(run_id=first, content="briefly", token_count=3))
    run = await driven(store, "three", cached_window=CachedWindow(first, ended))
    assert isinstance(run.window, Window)
    assert run.window.summary is not None
    assert run.window.summary.content == "briefly"


async def test_who_knows_a_branch_is_told_of_the_head(store: Store) -> None:
    """A run that did not become the head is not what the next one follows."""
    first, _ = await exchanged(store, "one")
    await exchanged(store, "two")
    run = await driven(store, "three", parent_id=first)
    await answered(store, run)
    (talk,) = await rows_of(store, conversations)
    known = CachedWindow(run.run_id, talk["updated_at"])
    after = await driven(store, "four", cached_window=known)
    assert words(after) == ["one", "on one", "two", "on two"]


async def test_a_full_window_is_told_whoever_knows_it(store: Store) -> None:
    """For it drops to half, and the asker cannot know where that begins."""
    await store.settings.update("ada", lambda _: {"max_context_nodes": 4})
    known: CachedWindow | None = None
    for number in range(5):
        run = await driven(store, f"q{number}", cached_window=known)
        assert known is None or run.window is known
        ended = await answered(store, run, f"a{number}")
        assert ended is not None
        known = CachedWindow(run.run_id, ended)
    run = await driven(store, "more", cached_window=known)
    assert words(run) == ["q3", "a3", "q4", "a4"]


# -- at once ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", range(10))
async def test_first_questions_at_once_share_a_context(
    store: Store, second: Store, url: str, number: int
) -> None:
    """Over two processes: none fails, one is driven, all are taken in, and nobody deadlocks."""
    before = deadlocks(url)
    found = await asyncio.gather(
        *((store, second)[n % 2].runs.submit(asking(f"{number}.{n}")) for n in range(16))
    )
    assert len({asked.conversation_id for asked in found}) == 1
    assert len({asked.run_id for asked in found}) == 16
    assert len([asked for asked in found if isinstance(asked, ClaimedRun)]) == 1
    assert len(await rows_of(store, oracle_contexts)) == len(await rows_of(store, projects)) == 1
    assert len(await rows_of(store, conversations)) == 1
    assert len(await rows_of(store, messages)) == 16
    assert deadlocks(url) == before


async def test_questions_and_ends_at_once(store: Store, second: Store, url: str) -> None:
    """Two processes ask, drive and end in four contexts; each question is answered once."""
    before = deadlocks(url)
    both, users = (store, second), ("ada", "bob", "eve", "kim")

    async def work(number: int) -> None:
        mine, user = both[number % 2], users[number % 4]
        asked = await mine.runs.submit(asking(f"{number}", user_id=user))
        if isinstance(asked, ClaimedRun):
            await answered(mine, asked, model="oak", context_tokens=10)
        while (found := await mine.runs.claim_next(asked.conversation_id)) is not None:
            if isinstance(found, ClaimedRun):
                await answered(mine, found, model="oak", context_tokens=10)
            else:
                await asyncio.sleep(0.001)

    await asyncio.gather(*(work(number) for number in range(32)))
    kept = await rows_of(store, runs)
    assert len(kept) == 32
    assert {(row["status"], row["attempt"]) for row in kept} == {("succeeded", 1)}
    chains = {row["conversation_id"]: [] for row in kept}
    for row in kept:
        chains[row["conversation_id"]].append(row["parent_id"])
    assert all(len(set(chain)) == 8 for chain in chains.values())
    assert deadlocks(url) == before


@pytest.mark.parametrize("turns", range(4))
async def test_an_asker_that_was_cancelled_gives_the_run_back(store: Store, turns: int) -> None:
    """The question is taken in all the same, and whoever comes next may drive it."""
    asked = asyncio.create_task(store.runs.submit(asking("one")))
    for _ in range(turns):
        await asyncio.sleep(0)
    asked.cancel()
    await asyncio.gather(asked, return_exceptions=True)
    if turns == 0:
        assert await rows_of(store, runs) == []  # it had not begun
        return
    lanes: list[int] = []
    deadline = asyncio.get_running_loop().time() + 30
    while not lanes:
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.01)
        lanes = await store.runs.claimable_lanes()
    found = await store.runs.claim_next(lanes[0])
    assert isinstance(found, ClaimedRun)
    assert (found.attempt, found.question.content) == (2, "one")
    assert words(found) == []


# -- lists -----------------------------------------------------------------------------------------


async def test_a_users_runs_the_newest_first(store: Store) -> None:
    """A page at a time, of one project or of all, with the beginning of the question."""
    await store.projects.create(Project("ada", "wald"))
    long = "é" * 300
    first, _ = await exchanged(store, long)
    await exchanged(store, "his", user_id="bob")
    other, _ = await exchanged(store, "in the wood", project_id="wald")
    talk = await store.conversations.create("ada")
    appended = await store.conversations.append("ada", talk.id, exchange("appended"))
    last = await driven(store, "last")
    found = await store.runs.list("ada", limit=10)
    assert [(each.run.id, each.project_id, each.question) for each in found] == [
        (last.run_id, "default", "last"),
        (appended, "default", "appended"),
        (other, "wald", "in the wood"),
        (first, "default", "é" * 200),
    ]
    assert found[0].run == await store.runs.get("ada", last.run_id)
    page = await store.runs.list("ada", limit=2, before=appended)
    assert [each.run.id for each in page] == [other, first]
    some = await store.runs.list("ada", project_id="wald", limit=10)
    assert [each.run.id for each in some] == [other]
    assert await store.runs.list("eve", limit=10) == []


async def test_the_open_runs_of_a_context(store: Store) -> None:
    """The one that runs, then those that wait, in their order."""
    assert await store.runs.list_unfinished("ada", "default") == []
    run = await driven(store, "one")
    waiting = [(await store.runs.submit(asking(str(n)))).run_id for n in range(3)]
    await driven(store, "his", user_id="bob")
    assert await store.runs.list_unfinished("ada", "default") == [run.run_id, *waiting]
    await store.runs.cancel("ada", waiting[1])
    await answered(store, run)
    assert await store.runs.list_unfinished("ada", "default") == [waiting[0], waiting[2]]


async def test_whose_end_was_asked_for(store: Store, second: Store) -> None:
    """Those among the given that go on and were cancelled, by whichever process."""
    ada, bob, eve = [await driven(store, user_id=user) for user in ("ada", "bob", "eve")]
    ids = [run.run_id for run in (ada, bob, eve)]
    assert await store.runs.find_cancel_requested(ids) == []
    await second.runs.cancel("bob", bob.run_id)
    await second.runs.cancel("eve", eve.run_id)
    assert await store.runs.find_cancel_requested(ids[:2]) == [bob.run_id]
    await answered(store, bob)
    assert await store.runs.find_cancel_requested(ids) == [eve.run_id]
    assert await store.runs.find_cancel_requested([]) == []


# -- what it costs ---------------------------------------------------------------------------------


async def test_a_run_without_tools_costs_few_statements(tmp_path: Any) -> None:
    """On SQLite, where each is a good part of what a run costs; BEGIN and COMMIT not counted."""
    async with await Store.open(str(tmp_path / "dodona.db"), redact=str) as store:
        first, ended = await exchanged(store, "one")
        seen: list[str] = []
        writer: Any = store.database
        connection = writer._database._writer._connection

        async def counted(operation: Any) -> tuple[Any, int]:
            seen.clear()
            result = await operation
            kept = ("SELECT", "INSERT", "UPDATE", "DELETE", "WITH")
            return result, len([sql for sql in seen if sql.lstrip().startswith(kept)])

        connection.set_trace_callback(seen.append)
        try:
            known = CachedWindow(first, ended)
            run, asks = await counted(driven(store, "two", cached_window=known))
            ends = await counted(answered(store, run, model="oak", context_tokens=9))
            after = await counted(driven(store, "three"))
        finally:
            connection.set_trace_callback(None)
    assert (asks, ends[1], after[1]) == (3, 5, 4)


_SHOW = {
    "sqlite": statement(text("PRAGMA synchronous")),
    "postgresql": statement(text("SHOW synchronous_commit")),
}


async def test_soft_writes_do_not_wait_for_the_disk(store: Store, url: str) -> None:
    """And those after them do again."""
    name = "postgresql" if url.startswith("postgresql:") else "sqlite"
    show = _SHOW[name]

    def level(tx: Any) -> Any:
        row = tx.fetch_one(show)
        return None if row is None else row[0]

    levels = [await store.database.write(level, soft=soft) for soft in (False, True, True, False)]
    expected: dict[str, list[Any]] = {
        "sqlite": [2, 1, 1, 2],
        "postgresql": ["on", "off", "off", "on"],
    }
    assert levels == expected[name]


class Hardness:
    """A real database that remembers how it was asked to write."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.soft: list[bool] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def submit(self, operation: StoreOperation[Any], *, soft: bool = False, **more: Any) -> Any:
        self.soft.append(soft)
        return self._inner.submit(operation, soft=soft, **more)


async def test_taking_in_and_ending_outlive_the_power(store: Store) -> None:
    """A reservation need not."""
    database: Any = Hardness(store.database)
    watched = Store(database, redact=str)
    run = await driven(watched)
    journal = await watched.journals.open(run)
    await journal.commit(lambda _: None)
    await journal.end(RunEnd(status=DONE))
    assert database.soft == [False, True, False]
