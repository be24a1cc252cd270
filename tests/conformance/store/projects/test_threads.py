"""Threads only grow: a title has one, what is pushed again is there once, others see nothing."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import delete, text, update
from sqlalchemy.exc import DBAPIError

from dodona.core.domain.knowledge.threads import NewEntry, ThreadEntry
from dodona.core.domain.projects import Project
from dodona.core.domain.trust import Mark, Marks
from dodona.core.errors import BadRequest, NotFound
from dodona.core.messages import Origin
from dodona.store import Store
from dodona.store.db.statements import SQLITE, Statement
from dodona.store.projects import threads
from dodona.store.schema import metadata, thread_entries
from dodona.store.schema import threads as table
from tests.conformance.store.saying import rows_of
from tests.conformance.store.test_schema import connect

HERS = NewEntry(
    user_id="ada",
    project_id="default",
    author="oracle",
    entry_type="decision",
    content="We take SQLite.",
    title="Database choice",
)


async def pushed(store: Store, content: str = "x", **more: Any) -> ThreadEntry:
    if "thread_id" in more:
        more["title"] = ""
    return await store.threads.push(replace(HERS, content=content, **more))


# -- pushing and reading ---------------------------------------------------------------------------


async def test_what_is_pushed_is_read(store: Store) -> None:
    """By title and by id, in the order in which it came."""
    first = await pushed(store, "We take SQLite.")
    then = await pushed(store, "It is fast.", thread_id=first.thread_id, author="user")
    page = await store.threads.read("ada", "default", first.thread_id)
    assert page.entries == (first, then)
    assert (page.total, page.thread.entries, page.thread.title) == (2, 2, "Database choice")
    assert (then.author, then.entry_type, then.content) == ("user", "decision", "It is fast.")
    assert page.thread.created_at <= first.created_at <= then.created_at
    assert page.thread.updated_at == then.created_at


@pytest.mark.parametrize(
    "title", ["DATABASE CHOICE", "  Database\n\tchoice ", "database\u2028choice", "Database choice"]
)
async def test_a_title_has_one_thread(store: Store, title: str) -> None:
    """However it is spaced or cased; the first spelling stays."""
    first = await pushed(store)
    assert (await pushed(store, title=title)).thread_id == first.thread_id
    assert [each.title for each in await store.threads.list("ada", "default")] == [HERS.title]


async def test_accents_are_compared_as_they_look(store: Store) -> None:
    """One code point or two; another letter is another title."""
    ids = [(await pushed(store, title=t)).thread_id for t in ("Größe", "GRO\u0308SSE", "Grosse")]
    assert ids[0] == ids[1] != ids[2]


async def test_threads_are_listed_latest_first(store: Store) -> None:
    """One that something is added to moves to the front."""
    for title in ("a", "b", "c"):
        await pushed(store, title=title)
    await pushed(store, title="A")
    listed = await store.threads.list("ada", "default")
    assert [(each.title, each.entries) for each in listed] == [("a", 2), ("c", 1), ("b", 1)]
    assert len(await store.threads.list("ada", "default", limit=2)) == 2


async def test_a_thread_is_read_page_by_page(store: Store) -> None:
    """After an entry, or the newest ones; each page knows how many there are."""
    ids = [(await pushed(store, str(number))).id for number in range(5)]
    thread_id = (await store.threads.list("ada", "default"))[0].id

    async def page(**wanted: int) -> list[int]:
        found = await store.threads.read("ada", "default", thread_id, **wanted)
        assert found.total == 5
        return [entry.id for entry in found.entries]

    assert await page(limit=2) == ids[:2]
    assert await page(after=ids[1], limit=2) == ids[2:4]
    assert await page(after=ids[4]) == []
    assert await page(after=-1, limit=2) == ids[3:]
    assert await page(after=-1) == ids


LONG = "x" * 20_000


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"author": "eve"}, "author must be one of user, claude, oracle, librarian (got 'eve')."),
        (
            {"author": "libarian"},
            "author must be one of user, claude, oracle, librarian (got 'libarian'). "
            "Did you mean 'librarian'?",
        ),
        (
            {"entry_type": "rumour"},
            "entry_type must be one of thought, decision, research, insight (got 'rumour').",
        ),
        ({"content": " \n"}, "content must not be empty."),
        (
            {"content": LONG + "x"},
            "content must have at most 20,000 characters (got 20,001). Write several entries.",
        ),
        ({"title": "x" * 201}, "title must have at most 200 characters (got 201)."),
        *(
            (
                change,
                "an entry needs exactly one thread. "
                "Give thread_id, or the title of an existing or new thread.",
            )
            for change in ({"title": " \t"}, {"title": ""}, {"thread_id": 1})
        ),
        ({"user_id": ""}, "a project needs a user."),
    ],
    ids=str,
)
async def test_what_is_wrong_is_refused(store: Store, change: dict[str, Any], said: str) -> None:
    """With what would be right; nothing is left of it."""
    with pytest.raises(BadRequest) as refused:
        await store.threads.push(replace(HERS, **change))
    assert str(refused.value) == said
    assert await rows_of(store, table) == []


@pytest.mark.parametrize(
    "content", [LONG, "🌳" * 20_000, "\0 \ud800 ok", "<b>'; DROP TABLE threads; --</b>"], ids=len
)
async def test_any_text_is_kept(store: Store, content: str) -> None:
    """Up to the bound; what no database holds is made visible."""
    entry = await pushed(store, content, title="\0 ' \ud800")
    assert entry.content == content.replace("\0", "\u2400").replace("\ud800", "\ufffd")
    assert (await store.threads.list("ada", "default"))[0].title == "\u2400 ' \ufffd"


# -- whose they are --------------------------------------------------------------------------------


async def test_anothers_are_not_found(store: Store) -> None:
    """Of another user or project: as what does not exist, in the same words."""
    await store.projects.create(Project("ada", "wald"))
    theirs = [
        await pushed(store, "secret oak", user_id="bob"),
        await pushed(store, "secret oak", project_id="wald"),
    ]
    for thread_id in (theirs[0].thread_id, theirs[1].thread_id, 999, 10**18):
        asked: list[Callable[[], Awaitable[Any]]] = [
            lambda thread_id=thread_id: store.threads.read("ada", "default", thread_id),
            lambda thread_id=thread_id: pushed(store, thread_id=thread_id),
        ]
        for ask in asked:
            with pytest.raises(NotFound) as refused:
                await ask()
            assert str(refused.value) == (
                f"there is no thread {thread_id}. List the threads of the project."
            )
    assert await store.threads.list("ada", "default") == []
    assert await store.threads.search("ada", "default", "secret oak", limit=5) == []
    mine = await pushed(store, "my oak")
    assert mine.thread_id not in {entry.thread_id for entry in theirs}
    (hit,) = await store.threads.search("ada", "default", "oak", limit=5)
    assert hit.id == mine.id


@pytest.mark.parametrize("project", ["nowhere", "../x", "bobs"])
async def test_a_project_that_is_not_there(store: Store, project: str) -> None:
    """Or is another's: nothing is begun, listed or searched in it."""
    await store.projects.create(Project("bob", "bobs"))
    for asked in (
        pushed(store, project_id=project),
        store.threads.list("ada", project),
        store.threads.search("ada", project, "x", limit=5),
    ):
        with pytest.raises(NotFound, match="there is no project"):
            await asked
    assert await rows_of(store, table) == []


# -- once ------------------------------------------------------------------------------------------


async def test_a_key_is_pushed_once(store: Store, second: Store) -> None:
    """A call that a crash cut is made again, by another process: the entry that is there counts."""
    first = await pushed(store, "once", key="run/1")
    before = await store.threads.list("ada", "default")
    assert await pushed(second, "once", key="run/1") == first
    assert await pushed(second, "otherwise", key="run/1", title="Other") == first
    assert await pushed(second, "once", key="run/1", thread_id=first.thread_id) == first
    assert await store.threads.list("ada", "default") == before
    other = await pushed(store, "once", key="run/2")
    assert other.id != first.id


async def test_keys_are_each_users_and_projects_own(store: Store) -> None:
    """A key that another has used says nothing."""
    await store.projects.create(Project("ada", "wald"))
    mine = await pushed(store, "mine", key="k")
    for more in ({"user_id": "bob"}, {"project_id": "wald"}):
        theirs = await pushed(store, "theirs", key="k", **more)
        assert (theirs.content, theirs.thread_id == mine.thread_id) == ("theirs", False)


async def test_a_push_whose_caller_was_cancelled_is_done_once(store: Store) -> None:
    """Whoever does not know whether it was made repeats it."""
    for number in range(10):
        lost = asyncio.create_task(pushed(store, "?", key=str(number)))
        await asyncio.sleep(0)
        lost.cancel()
        with suppress(asyncio.CancelledError):
            await lost
        await pushed(store, "?", key=str(number))
    kept = [row["key"] for row in await rows_of(store, thread_entries)]
    assert sorted(kept) == [str(number) for number in range(10)]


async def test_many_at_once_begin_one_thread(store: Store, second: Store) -> None:
    """Eight pushers in two processes, all of them first."""
    both = (store, second)
    found = await asyncio.gather(
        *(pushed(both[n % 2], str(n), title=("New", "NEW")[n // 4]) for n in range(8))
    )
    assert len({entry.thread_id for entry in found}) == 1
    (listed,) = await store.threads.list("ada", "default")
    assert listed.entries == 8


async def test_many_at_once_push_one_key_once(store: Store, second: Store) -> None:
    """Also into a thread that is not there yet."""
    both = (store, second)
    found = await asyncio.gather(*(pushed(both[n % 2], "x", key="k") for n in range(8)))
    assert len({each.id for each in found}) == 1
    assert len(await rows_of(store, thread_entries)) == 1


async def test_who_reads_on_misses_nothing(store: Store, second: Store) -> None:
    """Entries come to be seen in the order of their ids, whoever is faster."""
    thread_id = (await pushed(store)).thread_id
    pushing = asyncio.gather(
        *(pushed((store, second)[n % 2], str(n), thread_id=thread_id) for n in range(60))
    )
    seen: list[int] = []
    while len(seen) < 61:
        after = seen[-1] if seen else 0
        page = await store.threads.read("ada", "default", thread_id, after=after, limit=7)
        seen += [entry.id for entry in page.entries]
        if page.total == 61 and not page.entries:
            break
    added = await pushing
    assert seen[1:] == sorted(entry.id for entry in added)


# -- only growing ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        update(thread_entries).values(content="otherwise"),
        update(thread_entries).values(author="user"),
        delete(thread_entries),
    ],
    ids=["content", "author", "delete"],
)
async def test_entries_are_only_added(store: Store, url: str, change: Any) -> None:
    """The database itself refuses the rest."""
    await pushed(store, "as it is")

    def attempt() -> None:
        with (
            connect(url).begin() as connection,
            pytest.raises(DBAPIError, match="entries of threads are only added"),
        ):
            connection.execute(change)

    await asyncio.to_thread(attempt)
    (row,) = await rows_of(store, thread_entries)
    assert row["content"] == "as it is"


async def test_a_thread_that_is_deleted_takes_its_entries_along(store: Store, url: str) -> None:
    """And is no longer found by its words; others are."""
    gone = await pushed(store, "an oak", title="Oaks")
    stays = await pushed(store, "an oak and an elm", title="Elms")

    def remove() -> None:
        with connect(url).begin() as connection:
            connection.execute(delete(table).where(table.c.id == gone.thread_id))
            if connection.dialect.name == "sqlite":
                check = "INSERT INTO thread_words (thread_words) VALUES ('integrity-check')"
                connection.execute(text(check))

    await asyncio.to_thread(remove)
    assert [row["id"] for row in await rows_of(store, thread_entries)] == [stays.id]
    (hit,) = await store.threads.search("ada", "default", "oaks", limit=5)
    assert hit.id == stays.id


# -- indexes ---------------------------------------------------------------------------------------

QUERIES: dict[str, tuple[Statement, str]] = {
    "the threads of a project": (threads._SELECT_THREADS, "ix_threads_user_id"),
    "a thread": (threads._SELECT_THREAD, "INTEGER PRIMARY KEY"),
    "a thread by its title": (threads._LOCK_THREAD_BY_TITLE, "uq_threads_title_key"),
    "an entry by its key": (threads._SELECT_ENTRY_BY_KEY, "uq_thread_entries_key"),
    "a page": (threads._SELECT_ENTRIES_AFTER, "ix_thread_entries_thread_id"),
    "the last page": (threads._SELECT_LAST_ENTRIES, "ix_thread_entries_thread_id"),
    "the words": (threads._SEARCH_ENTRIES, "VIRTUAL TABLE INDEX"),
}


@pytest.mark.parametrize(("query", "index"), QUERIES.values(), ids=QUERIES)
def test_no_query_reads_a_whole_table(migrated_file: Any, query: Statement, index: str) -> None:
    """Nor are the words of others looked at one by one."""
    sql = query.sql(SQLITE)
    with connect(str(migrated_file)).connect() as connection:
        rows = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {sql}", (1,) * sql.count("?"))
        plan = [row[3] for row in rows]
    scanned = [line.split()[1] for line in plan if re.match(r"SCAN (\w+)", line)]
    assert not set(scanned) & set(metadata.tables), plan
    assert any(index in line for line in plan), plan


# -- marks -----------------------------------------------------------------------------------------

PAGE, NOTE = Mark(Origin.WEB, "https://example.org/oak"), Mark(Origin.PEER, "eve")


async def test_entries_and_titles_have_the_marks_of_who_wrote_them(store: Store) -> None:
    """A title has those of the first entry; what is added later marks the entry alone."""
    marks: Marks = frozenset({PAGE, NOTE})
    first = await pushed(store, "An oak.", marks=marks)
    plain = await pushed(store, "An elm.")
    other = await pushed(store, "An ash.", title="Other", marks=frozenset())
    later = await pushed(store, "A yew.", thread_id=other.thread_id, marks=frozenset({NOTE}))
    assert (first.marks, plain.marks, later.marks) == ([NOTE, PAGE], [], [NOTE])
    page = await store.threads.read("ada", "default", first.thread_id)
    assert (page.entries, page.thread.marks) == ((first, plain), [NOTE, PAGE])
    listed = {each.title: each.marks for each in await store.threads.list("ada", "default")}
    assert listed == {"Database choice": [NOTE, PAGE], "Other": []}


async def test_a_match_has_the_marks_of_its_entry_and_of_its_title(store: Store) -> None:
    await pushed(store, "An oak.", marks=frozenset({PAGE}))
    await pushed(store, "An elm.", marks=frozenset({NOTE}))
    await pushed(store, "An ash.", title="Other", marks=frozenset())
    found = {
        word: [hit.marks for hit in await store.threads.search("ada", "default", word, limit=5)]
        for word in ("oak", "elm", "ash")
    }
    assert found == {"oak": [[PAGE]], "elm": [[NOTE, PAGE]], "ash": [[]]}


async def test_an_entry_that_is_pushed_again_keeps_its_marks(store: Store) -> None:
    """Its key names it: a run that repeats the call may have read more, or less."""
    first = await pushed(store, key="run-1", marks=frozenset({PAGE}))
    assert await pushed(store, key="run-1", marks=frozenset()) == first
    assert first.marks == [PAGE]
