"""Entries are found by their words, alike in both databases, and nothing in a query is syntax."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from sqlalchemy import insert

from dodona.core.domain.knowledge.threads import EntryHit, NewEntry, ThreadEntry
from dodona.store import Store
from dodona.store.db.statements import statement
from dodona.store.db.thread_search import MAX_TERM_CHARS, MAX_TERMS, terms_of
from dodona.store.schema import thread_entries
from tests.conformance.conftest import COMPLETE

DAY = 86_400.0


async def pushed(store: Store, *contents: str, title: str = "Notes") -> list[ThreadEntry]:
    return [
        await store.threads.push(
            NewEntry(
                user_id="ada",
                project_id="default",
                author="user",
                entry_type="thought",
                content=content,
                title=title,
            )
        )
        for content in contents
    ]


async def sought(store: Store, query: str, limit: int = 10) -> list[EntryHit]:
    return await store.threads.search("ada", "default", query, limit=limit)


async def texts(store: Store, query: str, limit: int = 10) -> list[str]:
    return [hit.content for hit in await sought(store, query, limit)]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("oak", "The oaks speak."),
        ("OAK!", "The oaks speak."),
        ("deciding", "We decided on a port."),
        ("munchen", "A trip to München"),
        ("MÜNCHEN", "A trip to München"),
        ("mu\u0308nchen", "A trip to München"),
        ("deja", "de\u0301ja\u0300 vu"),
        ("threads.py", "See src/store/threads.py:12 for it."),
        ("threads", "See src/store/threads.py:12 for it."),
        ("store/threads", "See src/store/threads.py:12 for it."),
        ("example", "Read https://docs.example.com/guide?page=2 first."),
        ("guide", "Read https://docs.example.com/guide?page=2 first."),
        ("ada@lovelace.org", "Mail ada@lovelace.org"),
        ("lovelace", "Mail ada@lovelace.org"),
        ("read_entry", "def read_entry(): ..."),
        ("hidden", "<b>hidden</b>"),
        ("authen", "It needs authentication."),
        ("v2", "The v2 protocol"),
        ("42", "It is 42"),
        ("привет", "Привет, мир"),
        ("神谕", "神谕 在 此"),
        ("what did we decide about ports?", "We decided on a port."),
    ],
)
async def test_an_entry_is_found(store: Store, query: str, found: str) -> None:
    """In other forms, without accents, by parts of paths and addresses, by how a word begins."""
    others = ("Nothing of the kind.", "Elms are silent.", "The sea, the sea")
    await pushed(store, *others, found)
    assert (await texts(store, query))[0] == found


@pytest.mark.parametrize("query", ["", " ", "?!", '"', "* - :", "zebra", "\0", "→", "\ud800", "_"])
async def test_what_nothing_fits_finds_nothing(store: Store, query: str) -> None:
    await pushed(store, "The oaks speak.", "*", '"', "→")
    assert await texts(store, query) == []


HOSTILE = (
    'oak" OR "elm',
    "oak AND",
    "NEAR(oak elm, 2)",
    "title:oak",
    "-oak",
    "oak*",
    "^oak",
    "{title content}: oak",
    "oak'); DROP TABLE threads; --",
    "oak & | ! <-> :* ( )",
    "'oak':A",
    "oak\\",
    "oak\0elm",
    "oak %s %(x)s $1 ? :x",
    "oak " * 5_000,
    "oak " + "z" * 100_000,
)


@pytest.mark.parametrize("query", HOSTILE, ids=lambda query: query[:20])
async def test_nothing_in_a_query_is_syntax(store: Store, query: str) -> None:
    """It is words, whatever else it looks like."""
    await pushed(store, "The oaks speak.", "Silence")
    assert await texts(store, query) == ["The oaks speak."]


@settings(
    max_examples=60,
    deadline=None,
    derandomize=COMPLETE,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(query=st.text(max_size=60), content=st.text(min_size=1, max_size=60))
@example(query="'" * 60, content="0")
async def test_any_query_is_answered(store: Store, query: str, content: str) -> None:
    """And what is sought with its own words is found, whatever they are."""
    await pushed(store, f"{content} oak", title="Anything")
    await sought(store, query)
    found = await texts(store, f"oak {content}", limit=1000)
    assert len(found) == (await store.threads.list("ada", "default"))[0].entries


def test_terms_are_few_and_short() -> None:
    """Each once, in the order of the query."""
    assert terms_of("Oak oak OAK elm") == ["OAK", "elm"]
    assert len(terms_of(" ".join(map(str, range(100))))) == MAX_TERMS
    assert terms_of("x" * 500) == ["x" * MAX_TERM_CHARS]


async def test_a_title_finds_its_entries(store: Store) -> None:
    """After those that say it themselves."""
    await pushed(store, "They rustle.", title="Leaves of oaks")
    await pushed(store, "An oak is a tree.", title="Trees")
    assert await texts(store, "oak") == ["An oak is a tree.", "They rustle."]
    assert [hit.title for hit in await sought(store, "oak")] == ["Trees", "Leaves of oaks"]


async def test_who_has_more_of_the_words_comes_first(store: Store) -> None:
    """Scores fall from at most 1."""
    many = [f"Note {number} on elms" for number in range(30)]
    await pushed(store, *many, "oak", "An oak of Dodona", "Dodona")
    hits = await sought(store, "the oak of dodona")
    assert hits[0].content == "An oak of Dodona"
    assert {hit.content for hit in hits[1:3]} == {"oak", "Dodona"}
    scores = [hit.score for hit in hits]
    assert scores == sorted(scores, reverse=True)
    assert 0.99 < scores[0] <= 1
    assert scores[2] < 0.9


async def test_there_are_no_more_than_asked_for(store: Store) -> None:
    await pushed(store, *(f"oak {number}" for number in range(70)))
    assert len(await sought(store, "oak", 3)) == 3
    assert len(await sought(store, "oak", 70)) == 70


async def test_of_two_that_fit_alike_the_newer_is_first(store: Store) -> None:
    """But one that fits better is not hidden by one that is new."""
    (first,) = await pushed(store, "begin")
    now = first.created_at
    ages = {"an oak, a year ago": 365, "an oak, a week ago": 7, "an oak, now": 0}
    aged = [
        {"thread_id": first.thread_id, "content": content, "created_at": now - days * DAY}
        for content, days in ages.items()
    ]
    aged.append({"thread_id": first.thread_id, "content": "oak elm", "created_at": now - 365 * DAY})
    same = {"author": "user", "entry_type": "thought", "title": ""}
    await store.database.write(
        lambda tx: [
            tx.execute(statement(insert(thread_entries).values(**row, **same))) for row in aged
        ]
    )
    alike = [found for found in await texts(store, "oak") if found in ages]
    assert alike == [
        "an oak, now",
        "an oak, a week ago",
        "an oak, a year ago",
    ]
    assert (await texts(store, "oak elm"))[0] == "oak elm"
